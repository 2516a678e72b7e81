"""Decides for transactional ids, without clock, log or socket: pure data and rules."""
