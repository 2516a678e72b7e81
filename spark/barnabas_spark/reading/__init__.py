"""Reads planned ranges. Begin with `reader`."""
