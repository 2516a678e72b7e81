"""Tells clients what they may do, as bit fields: everything that there is, because there are no ACLs yet.

A bit's number is that of the operation in Kafka: 3 READ, 4 WRITE, 5 CREATE, 6 DELETE, 7 ALTER, 8 DESCRIBE,
9 CLUSTER_ACTION, 10 DESCRIBE_CONFIGS, 11 ALTER_CONFIGS, 12 IDEMPOTENT_WRITE.
"""

__all__ = ["NOT_ASKED", "OF_CLUSTERS", "OF_GROUPS", "OF_TOPICS"]

OF_TOPICS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
OF_GROUPS = sum(1 << bit for bit in (3, 6, 8, 10, 11))
OF_CLUSTERS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -(1 << 31)
