"""Writes records to topics. Begin with `producer`."""
