"""Walks from record to record within batches: compiled where a compiler was, else in Python, with the same answers."""
