"""Moves whole segments from node to node: for followers far behind, and repairs."""
