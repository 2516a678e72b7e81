"""The commands that look at a cluster: from its own machine (`status`), and from any (`health`, `events`)."""
