"""Raft as a pure step function. Paper: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm"."""
