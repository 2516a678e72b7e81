"""Benchmarks: `measures/` behind the commands, `loads/` that they put on `systems`."""
