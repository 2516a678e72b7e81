"""Members of groups that are programs of other clients: librdkafka's and Apache Kafka's own."""
