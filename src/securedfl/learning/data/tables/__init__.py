"""Tables of the user's own: their files, and what their columns are as arrays."""
