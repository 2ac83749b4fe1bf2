"""Who trains: this process, several of this machine (how many is measured), or the workers of a cluster."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Literal

from securedfl.errors import ConfigError, MissingDependencyError
from securedfl.learning.training.processes import ProcessTeam
from securedfl.learning.training.task import Engine, Task
from securedfl.learning.training.team import InProcessTeam, Team

START_SECONDS = 8.0
"""What starting processes costs, mostly the import of torch in each; twice what an idle machine needs."""

EFFICIENCY = 0.8
"""How much of a further core arrives: cores share memory and its bandwidth."""


def make_team(
    task: Task,
    workers: int | Literal["auto"],
    *,
    updates: int,
    rows: int | None = None,
    engine: Engine = "local",
    address: str | None = None,
    gpu: bool = False,
    tell: Callable[[str], None] = print,
) -> Team:
    """Return a team of that many workers; ``"auto"`` takes as many as end soonest, of Ray one per core or GPU.

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
    engine, address, gpu
        Who runs the workers; of Ray, the address of a cluster that is there, and whether peers train on GPUs.
    tell
        Hears what the user should know, in one line.
    """
    if engine == "ray":
        if not task.movable:
            raise ConfigError(
                'engine = "ray" needs an app that its workers can import: put the function into a module and give its '
                'name, module:function; or use engine = "local"'
            )
        check_engine("ray")
        # late: most runs do without
        from securedfl.learning.training.cluster.ray_host import RayHost
        from securedfl.learning.training.cluster.team import ShardTeam

        offered = min(cores(), task.peers) if workers == "auto" else workers
        return ShardTeam(task, RayHost(address, cores=offered, gpu=gpu), workers, tell, rows, gpu=gpu)
    if workers == "auto":
        workers = quickest(task.seconds() * updates, min(cores(), task.peers))
    count = min(int(workers), task.peers) if task.movable else 1
    return InProcessTeam(task, rows) if count == 1 else ProcessTeam(task, count, rows)


def check_engine(engine: Engine) -> None:
    """Refuse an engine that is not installed, before anything is read or written."""
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        raise MissingDependencyError("engine = \"ray\": ray is missing; install it with: pip install 'securedfl[ray]'")


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
