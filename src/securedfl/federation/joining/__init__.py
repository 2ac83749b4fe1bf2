"""For people who own their training loop: a peer that averages when it is called, in one process or in several."""
