"""Shares one event loop: deadlines, and long work in short pieces."""
