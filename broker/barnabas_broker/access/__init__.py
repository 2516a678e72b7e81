"""Who may come in: the one-time tokens by which another machine gets the secret of a cluster."""
