"""Experiments: the paper's evaluation repeated, its numbers beside ours; `result_files.EXPERIMENTS` lists them all."""
