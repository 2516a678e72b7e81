"""The journal of a node: every entry is here first, and durable when it is synced. Begin with `journal`."""
