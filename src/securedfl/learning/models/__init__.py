"""Models by name, as flat vectors."""
