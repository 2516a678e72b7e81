"""Knows who leads each partition, and hands leaderships on. Begin with `known_leaders`."""
