"""What an operator or a client may set, with its range and its Kafka name. Begin with `broker`."""
