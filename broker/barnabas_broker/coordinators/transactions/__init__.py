"""Coordinates transactions: the life of each transactional id, in `__transaction_state`."""
