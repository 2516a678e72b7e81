"""Makes logs of the files in a data directory, after a stop or a crash. Begin with `startup`."""
