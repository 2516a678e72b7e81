"""Consumer groups as pure data and rules: what the coordinator decides, without a clock, a log or a socket. Pure."""
