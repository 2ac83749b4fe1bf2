"""One file for each system: how its user sets it up, starts it, and looks after it."""
