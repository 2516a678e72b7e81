"""The work of `barnabas group`, a file a question: list, describe, move and delete positions and groups."""
