"""Reads topics as streams of micro-batches. Begin with `reader`."""
