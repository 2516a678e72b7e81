"""Coordinates consumer groups: begin with `coordinator`, then `shard`; the rules are in `state_machine`."""
