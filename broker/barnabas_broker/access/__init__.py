"""Decides who may come in: one-time tokens, by which another machine gets the secret."""
