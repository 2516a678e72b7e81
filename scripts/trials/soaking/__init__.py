"""Load and faults for an hour, and a verdict on what grows. Begin with `soak`."""
