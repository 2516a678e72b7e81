"""Long runs against real brokers, with faults and a verdict."""
