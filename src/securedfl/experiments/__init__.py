"""Experiments: the paper's evaluation repeated, its numbers beside ours."""
