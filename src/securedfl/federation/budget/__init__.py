"""Differential privacy of a run: its settings, its plan, what sites add to what they bring, and what was spent."""
