"""The way into a cluster, which all clients share. Begin with `cluster`."""
