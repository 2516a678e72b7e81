"""All replicas that this broker holds. Begin with `partitions`."""
