"""The active controller's decisions, all of them pure. Begin with `controller`."""
