"""The replicated log: Raft, the journal and segments under it, and the links between nodes."""
