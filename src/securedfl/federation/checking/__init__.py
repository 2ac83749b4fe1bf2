"""Before a run: whether everything is in place at a site."""
