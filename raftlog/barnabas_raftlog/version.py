"""The version of everything in this repository: all of it is released together."""

__all__ = ["__version__"]

__version__ = "0.1.0"
