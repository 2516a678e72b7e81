"""The broker: Kafka on the wire, partitions on Raft."""
