"""Decides for consumer groups, without clock, log or socket: pure data and rules."""
