"""Reads by a name that the brokers keep. `vector` is pure, `store` asks the cluster."""
