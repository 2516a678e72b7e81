"""What the active controller decides, all of it pure. Begin with `controller`."""
