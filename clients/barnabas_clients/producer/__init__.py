"""Writing to topics. Begin with `producer`."""
