"""The work of `barnabas topic`, a file a question: list, describe, change, delete records."""
