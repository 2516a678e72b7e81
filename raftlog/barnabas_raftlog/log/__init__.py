"""The durable log: segments, the node-wide journal, recovery."""
