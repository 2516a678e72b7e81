"""Windows of event time over a topic, as a streaming query. Begin with `query`."""
