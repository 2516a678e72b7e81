"""The process of a broker: log lines, descriptors, memory, and the bugs that end it."""
