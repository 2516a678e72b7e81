"""Benchmarks: `measures/` is what each command measures, `loads/` what it puts on which of the `systems`."""
