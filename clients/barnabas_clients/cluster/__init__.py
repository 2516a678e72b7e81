"""Connects a client to a cluster, for producer, consumer and admin alike. Begin with `cluster`."""
