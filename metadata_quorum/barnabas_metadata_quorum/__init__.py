"""The metadata quorum: cluster state as a Raft-replicated, versioned image (KIP-500)."""
