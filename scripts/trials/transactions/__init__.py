"""Transactions under faults: `torture --workload txn`. Begin with `rounds.py`."""
