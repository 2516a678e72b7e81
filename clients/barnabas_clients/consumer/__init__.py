"""Reads topics, alone or in a group. Begin with `consumer`."""
