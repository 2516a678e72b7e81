"""Programs of Kafka's ecosystem on Barnabas: Kafka Connect."""
