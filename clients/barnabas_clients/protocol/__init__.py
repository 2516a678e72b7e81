"""Declares the messages of Kafka's protocol, once for all versions; the broker uses them too. Pure."""
