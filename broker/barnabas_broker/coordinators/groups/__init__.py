"""The coordinator of consumer groups: `coordinator`, then `shard`; the rules are in `state_machine/`."""
