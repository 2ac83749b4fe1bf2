"""How sure a difference is: two models on the same test samples (`paired`), and what an interval says (`judging`)."""
