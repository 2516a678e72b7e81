"""The parts of the benchmark, one module each; `PARTS` of `bench.measures.spark` has them by name."""
