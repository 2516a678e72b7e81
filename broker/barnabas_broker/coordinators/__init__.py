"""Keeps state in partitions of internal topics, on the broker that leads each."""
