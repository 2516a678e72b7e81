"""Segments as files that come from another replica."""
