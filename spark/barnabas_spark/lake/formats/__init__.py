"""The formats of a lake's table: each keeps what it says of offsets where its own readers keep it safe."""
