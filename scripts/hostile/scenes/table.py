"""Loads every scene, so that the table of all of them is whole."""

from . import arrays, batches, connections, consumers, groups, own_apis, peers, reads, topics
from .scene import SCENES

__all__ = ["MODULES", "SCENES"]

MODULES = (arrays, batches, connections, consumers, groups, own_apis, peers, reads, topics)
"""Each enters its scenes into the table when it is loaded."""
