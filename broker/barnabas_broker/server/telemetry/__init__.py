"""Metrics that clients tell of themselves (KIP-714): who is asked for which, and where they go."""
