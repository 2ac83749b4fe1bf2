"""The core of the log, piece by piece."""
