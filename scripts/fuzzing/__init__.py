"""Bytes and values that nobody should send, drawn by a seed: what `scripts/fuzz` is made of."""
