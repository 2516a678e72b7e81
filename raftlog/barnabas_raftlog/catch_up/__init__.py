"""Whole segments from node to node: for followers that are far behind, and in place of damaged ones."""
