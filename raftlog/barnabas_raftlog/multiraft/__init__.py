"""Runs all Raft groups of one node: routing, outboxes, the driver of the cores."""
