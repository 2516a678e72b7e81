"""Lands topics in tables of a lake, exactly once. Begin with `ranges` and `table`."""
