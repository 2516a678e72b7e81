"""What belongs to the process of a broker: its log lines, descriptors, memory, and the bugs that end it."""
