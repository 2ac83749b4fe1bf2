"""Whether everything is in place at a site before a run, and where the run stands."""
