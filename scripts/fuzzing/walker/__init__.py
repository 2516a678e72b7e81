"""Damages record batches and compares the compiled record walker with its twin in Python."""
