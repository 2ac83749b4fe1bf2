"""The runs of an experiment: needed ones (`training`), how long they take (`estimate`), what they gave (`found`)."""
