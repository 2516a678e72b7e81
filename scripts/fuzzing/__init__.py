"""Bytes and values that nobody should send, drawn by a seed: the parts of `scripts/fuzz`."""
