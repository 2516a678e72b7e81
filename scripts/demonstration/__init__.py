"""The demonstration behind `scripts/demo`: real input in, the same lines out of a group and of Spark."""
