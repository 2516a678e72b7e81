"""Transactions of a producer: what is asked next, what answers mean. Pure; begin with `state_machine.py`."""
