"""Simulated peers, all in one process: how they train and average, and one method of a run."""
