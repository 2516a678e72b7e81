"""Settings of brokers and topics, with their ranges and Kafka names. Begin with `broker`."""
