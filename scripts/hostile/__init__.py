"""Hostile clients and their costs: `scripts/torture --workload hostile`, `largest` and `crowd`."""
