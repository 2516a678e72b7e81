"""Clients that mean harm, and what they cost: `scripts/torture --workload hostile`, `largest` and `crowd`."""
