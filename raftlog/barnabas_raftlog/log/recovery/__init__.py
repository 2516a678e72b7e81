"""From the files of a data directory to logs, after a stop or a crash. Begin with `startup`."""
