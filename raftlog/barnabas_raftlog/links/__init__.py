"""Connects nodes: connections, frames, datagrams, calls."""
