"""Who leads which partition, and how every node hears of it."""
