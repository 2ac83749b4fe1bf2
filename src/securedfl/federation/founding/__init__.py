"""Beginning: the files of a new federation, and of a new project."""
