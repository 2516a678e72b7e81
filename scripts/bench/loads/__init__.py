"""Load generators, each a process of its own, and the workloads that they are given."""
