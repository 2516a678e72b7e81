"""The walker in Python: the same answers as the compiled one, and a model of it."""
