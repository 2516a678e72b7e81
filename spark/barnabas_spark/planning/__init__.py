"""Plans what tasks read. Pure. Begin with `plan`."""
