"""Runs of the simulator, and of mistakes planted into the code: `scripts/sim`, `mutants`, `seam-mutants`."""
