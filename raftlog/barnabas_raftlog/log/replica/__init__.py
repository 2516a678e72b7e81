"""The log of one replica. Begin with `replica_log`."""
