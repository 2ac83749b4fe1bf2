"""The simulated world: a whole federation in one process, on a virtual clock, with faults from a seed."""
