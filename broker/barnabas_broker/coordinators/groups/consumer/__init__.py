"""Decides for the groups of KIP-848, without clock, log or socket: pure data and rules."""
