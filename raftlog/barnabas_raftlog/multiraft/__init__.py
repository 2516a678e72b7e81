"""All Raft groups of one node: routing, outboxes, liveness, durability."""
