"""Tables with the latest record of each key of a changelog. Begin with `run`."""
