"""The demonstration behind `scripts/demo`. Begin with `run`."""
