"""Runs of the simulator, and of planted mistakes: `scripts/sim`, `mutants`, `seam-mutants`."""
