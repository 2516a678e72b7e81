"""The leaders of all partitions: a table, and how every node learns of them."""
