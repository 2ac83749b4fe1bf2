"""Apps: what users bring to train, one and the same for simulated and for real peers. No torch."""
