"""Writes a batch as a whole or not at all: many transactions, and one record that decides about them."""
