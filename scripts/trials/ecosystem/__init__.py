"""Programs of Kafka's ecosystem on Barnabas: Kafka Connect and MirrorMaker 2."""
