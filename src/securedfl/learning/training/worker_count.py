"""How many processes to train with: measured on this machine, for this model."""

from __future__ import annotations

import os

from securedfl.learning.training.processes import ProcessTeam
from securedfl.learning.training.task import Task
from securedfl.learning.training.team import InProcessTeam, Team

START_SECONDS = 8.0
"""What starting processes costs, mostly the import of torch in each; twice what an idle machine needs."""

EFFICIENCY = 0.8
"""How much of a further core arrives: cores share memory and its bandwidth."""


def make_team(task: Task, workers: int | str, *, updates: int, rows: int | None = None) -> Team:
    """Return a team of that many workers; ``"auto"`` takes as many as end soonest.

    Parameters
    ----------
    task
        What to train.
    workers
        The number of processes, or ``"auto"``. It never changes the numbers.
    updates
        How many times all peers will be trained, for ``"auto"``.
    rows
        Of parameters; by default one per peer. See `Team.seat`.
    """
    if workers == "auto":
        workers = quickest(task.seconds() * updates, min(cores(), task.peers))
    count = min(int(workers), task.peers) if task.movable else 1
    return InProcessTeam(task, rows) if count == 1 else ProcessTeam(task, count, rows)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def speed(workers: int) -> float:
    """Return how many times as fast as one so many workers are."""
    return 1 + EFFICIENCY * (workers - 1)


def quickest(seconds: float, most: int) -> int:
    """Return the number of workers that ends soonest, for work that takes one worker so many seconds."""

    def duration(workers: int) -> float:
        return seconds if workers == 1 else START_SECONDS + seconds / speed(workers)

    return min(range(1, most + 1), key=duration)
