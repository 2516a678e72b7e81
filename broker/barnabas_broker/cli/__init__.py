"""The `barnabas` command. `entry` is where it starts, `parser/` declares it, `commands/` does the work."""
