"""Kafka wire protocol: messages declared once for all versions, shared with the broker. Pure."""
