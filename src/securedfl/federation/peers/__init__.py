"""Real peers, one process per site."""
