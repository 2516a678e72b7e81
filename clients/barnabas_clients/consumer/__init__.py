"""Reading topics. Begin with `consumer`."""
