"""Searches inputs that break a decoder of strangers' bytes."""
