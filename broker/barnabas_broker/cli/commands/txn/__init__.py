"""The work of `barnabas txn`, a file a question: ids, producers, what holds readers back, what hangs, and its end."""
