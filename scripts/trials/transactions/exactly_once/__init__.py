"""A pipeline of processes that are killed, and its exact counts: `exactly-once`. Begin with `run.py`."""
