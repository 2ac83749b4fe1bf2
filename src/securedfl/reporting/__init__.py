"""Evaluation: what a run showed, as tables, figures and an HTML report."""
