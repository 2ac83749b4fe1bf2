"""How long runs will take: some batches, a score and an average of each method are measured here, and multiplied."""

from __future__ import annotations

import timeit
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securedfl.errors import SecuredFLError, rebuilt
from securedfl.experiments.runs.training import NeededRun, Stage
from securedfl.federation.config import TrainConfig
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.learning.data.hub import Tell

if TYPE_CHECKING:
    from securedfl.learning.training.known import KnownTask

TESTS = 128
"""Test samples that are scored to measure what scoring takes."""


@dataclass(frozen=True, kw_only=True)
class RoundTime:
    """Seconds of one round: of training all peers, of scoring them, and of each method's average."""

    train: float
    score: float
    averages: Mapping[str, float]

    def of(self, method: str) -> float:
        """Return the seconds that one method takes for a round."""
        return self.train + self.score + self.averages[method]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One run: how far it is, what a round of it takes, and how many seconds are left of it; or why nobody knows."""

    run: NeededRun
    state: Stage
    round: RoundTime | None = None
    seconds: float | None = 0.0
    error: SecuredFLError | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        told = {"run": self.run.about, "folder": str(self.run.folder), "state": self.state, "seconds": self.seconds}
        error = None if self.error is None else str(self.error)
        return {**told, "round": None if self.round is None else asdict(self.round), "error": error}


def estimate(runs: Sequence[NeededRun], states: Mapping[Path, Stage], tell: Tell) -> list[Estimate]:
    """Measure a round of every kind of run that is left, and return what all of them will take.

    Runs that cannot be measured, for instance because their data set is not here, have the error that says why.

    Parameters
    ----------
    runs, states
        What an experiment needs, and how far each run is.
    tell
        Told what is being measured.
    """
    known: dict[tuple[object, ...], RoundTime] = {}
    failed: dict[tuple[object, ...], SecuredFLError] = {}
    found = []
    for run in runs:
        state, config = states[run.folder], run.config
        if state == "finished":
            found.append(Estimate(run=run, state=state))
            continue
        # what a round takes depends neither on the seed nor on the start
        kind = (config.dataset, config.peers, config.fraction, config.width, config.iterations, config.methods)
        data = (config.dataset, config.peers)
        if kind not in known and kind not in failed and data not in failed:
            tell(f"Measuring a round of {run.about}")
            # what cannot be opened is not opened again for other runs of the same data; those may be measured else
            what: tuple[object, ...] = data
            try:
                task, what = opened(config), kind
                known[kind] = measured(config, task)
            except SecuredFLError as error:
                failed[what] = error
        if kind not in known:
            why = failed[kind if kind in failed else data]
            found.append(Estimate(run=run, state=state, seconds=None, error=why))
            continue
        done = {row.method: row.round for row in read_rows(run.folder, Row)}
        left = {method: config.rounds - done.get(method, 0) for method in config.methods}
        seconds = sum(count * known[kind].of(method) for method, count in left.items())
        found.append(Estimate(run=run, state=state, round=known[kind], seconds=seconds))
    return found


def not_measured(found: Sequence[Estimate]) -> list[str]:
    """Return which data sets have runs that could not be measured, and why; if no run could be, that is the error."""
    by_reason: dict[str, list[Estimate]] = {}
    for one in found:
        if one.error is not None:
            by_reason.setdefault(str(one.error), []).append(one)
    lines = []
    for reason, runs in by_reason.items():
        names = ", ".join(dict.fromkeys(one.run.config.dataset for one in runs))
        lines.append(f"{names}: {len(runs)} run{'s' * (len(runs) != 1)} could not be measured: {reason}")
    errors = [one.error for one in found if one.state != "finished"]
    if errors and None not in errors:
        raise rebuilt(type(errors[0]).__name__, "; ".join(lines)) or SecuredFLError("; ".join(lines))
    return lines


def opened(config: TrainConfig) -> KnownTask:
    """Return what a run trains, with its data."""
    # Late, because torch takes seconds.
    from securedfl.federation.task import make_task

    return make_task(config)


def measured(config: TrainConfig, task: KnownTask) -> RoundTime:
    """Measure a round here, with this data: batches of the largest peer, a score, one average of each method."""
    from securedfl.federation.methods import averaging_of, choose_design, protocol_of
    from securedfl.learning.training.trainer import one_thread
    from securedfl.learning.training.worker_count import cores, quickest, speed
    from securedfl.simulation.driver import run

    design = choose_design(config)
    x, y = task.all_tests() or (task.dataset.x, task.dataset.y)
    with one_thread():
        trainer = task.maker([0])()
        row = np.zeros(trainer.schema.size, dtype=trainer.schema.dtype)
        trainer.initialise(0, row)
        some = partial(trainer.evaluate, 0, row, (x[:TESTS], y[:TESTS]))
        score = min(timeit.repeat(some, repeat=2, number=1))
    alone = task.seconds()
    wanted = config.workers
    workers = quickest(alone * config.rounds, min(cores(), task.peers)) if wanted == "auto" else int(wanted)
    averages = dict.fromkeys(config.methods, 0.0)
    for method in config.methods:
        if protocol_of(config, method) is not None:
            chosen = averaging_of(config, method, design).at(1)
            averages[method] = timeit.timeit(partial(run, chosen, [row] * config.peers), number=1)
    return RoundTime(
        train=alone / speed(workers),
        score=score / min(TESTS, len(x)) * len(x) / speed(workers),
        averages=averages,
    )
