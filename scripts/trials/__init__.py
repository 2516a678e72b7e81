"""Long runs against real brokers, with faults and a verdict. Each is started by the script beside it, or above."""
