"""The journal of a node: every entry is here first, and durable when synced. Begin with `journal`."""
