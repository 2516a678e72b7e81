"""Runs a partition of an internal topic as a replicated state machine; begin with `contracts`."""
