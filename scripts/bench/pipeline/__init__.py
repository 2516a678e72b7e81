"""What `scripts/bench/spark` measures: our data source beside Spark's own connector, and that on two clusters."""
