"""Local updates of one peer, and of all peers of a simulation."""
