"""The work of `barnabas cluster` and its tokens: start, stop and restart brokers of a directory."""
