"""Writes DataFrames to topics. `columns` and `partitioning` prepare rows, `batches` encodes them, `task` sends them."""
