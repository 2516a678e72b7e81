"""All Raft groups of one node: routing, outboxes, links between nodes, liveness, the driver of the cores."""
