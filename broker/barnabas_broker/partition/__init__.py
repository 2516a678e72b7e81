"""One replica of a partition, as Kafka sees it. Begin with `partition`."""
