"""A Kafka Streams application whose results are known: what goes in, what must come out, and who disturbs it."""
