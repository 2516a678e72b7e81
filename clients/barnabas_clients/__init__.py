"""asyncio clients for Barnabas and Apache Kafka."""
