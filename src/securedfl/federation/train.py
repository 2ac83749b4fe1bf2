"""A whole run: every method trained with Algorithm 3, with metrics, checkpoints, summary and report on disk."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import securedfl
from securedfl.designs import Design
from securedfl.errors import RunFolderError
from securedfl.federation import checkpoint as checkpoints
from securedfl.federation.algorithm3 import Average, SecureAggregation, algorithm3, secure_aggregation
from securedfl.federation.certify import certify, save
from securedfl.federation.checkpoint import Checkpoint, save_parameters
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import averaging, choose_design
from securedfl.federation.metrics import SCALARS, Row, make_row, summarise
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder import RunFolder
from securedfl.federation.tensorboard import Events
from securedfl.learning.data import datasets
from securedfl.learning.data import dealing as partition
from securedfl.learning.data.hub import Report
from securedfl.learning.models.registry import builder
from securedfl.learning.seeds import stream
from securedfl.learning.training.team import Task, Team
from securedfl.learning.training.trainer import Array, TrainingOptions
from securedfl.learning.training.worker_count import make_team
from securedfl.protocols import InsecureSeededDraw
from securedfl.simulation.driver import Draws


def train(config: TrainConfig, *, observer: Observer | None = None) -> dict[str, Any]:
    """Train a simulated federation with every method of the configuration and return the summary.

    A script that sets ``workers`` above 1 needs the usual ``if __name__ == "__main__":``, because processes are
    spawned.
    """
    for method in config.methods:  # before anything is written
        averaging(config, method, Design.everyone(config.peers))
    builder(config.model)
    observer = observer or Observer()
    task = make_task(config, observer.preparing)
    design = choose_design(config)
    certificate = certify(config, design)
    path = config.out or default_folder(config)
    folder = RunFolder.create(path, config, design)
    return _run(folder, task, certificate, observer)


def resume(
    path: Path, *, changes: Mapping[str, Any] | None = None, observer: Observer | None = None
) -> dict[str, Any]:
    """Continue a run that was stopped or killed; the numbers are those of an uninterrupted one.

    Parameters
    ----------
    path
        The run folder.
    changes
        Settings given again. Only those that change no number may differ (workers, for instance).
    observer
        Told about progress.
    """
    folder = RunFolder.open(path, changes)
    with ExitStack() as stack:
        stack.callback(folder.close)
        certificate = certify(folder.config, folder.design)
        observer = observer or Observer()
        return _run(folder, make_task(folder.config, observer.preparing), certificate, observer)


def make_task(config: TrainConfig, report: Report | None = None) -> Task:
    """Load the data, deal it to the peers and collect the options of training; ``report`` hears what takes long."""
    dataset = datasets.load(config.dataset, config.data_dir, report)
    dataset = dataset.fraction(config.fraction, stream(config.seed, "fraction"))
    shares = partition.deal(
        dataset, config.peers, partition=config.partition, alpha=config.alpha, seed=config.seed
    )
    options = TrainingOptions(
        model=config.model,
        width=config.width,
        epochs=config.epochs,
        batch_size=config.batch_size,
        optimizer=config.optimizer,
        learning_rate=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        seed=config.seed,
    )
    return Task(dataset, shares, options)


def default_folder(config: TrainConfig) -> Path:
    """Return runs/DATASET-PEERS-TIME."""
    return Path("runs") / f"{config.dataset}-{config.peers}-{time.strftime('%Y%m%d-%H%M%S')}"


def _run(folder: RunFolder, task: Task, certificate: Mapping[str, Any], observer: Observer) -> dict[str, Any]:
    """Train what is left of a run; stopped or not, leave a summary and a report."""
    config = folder.config
    with ExitStack() as stack:
        stack.callback(folder.close)
        done = _resume_points(folder)
        left = sum(config.rounds - (done[m].round if m in done else 0) for m in config.methods)
        try:
            if left:
                team = stack.enter_context(make_team(task, config.workers, updates=left))
                observer.started(folder.path, config, team.workers)
                for method in config.methods:
                    _train_method(folder, task, team, method, done.pop(method, None), observer)
        except BaseException:  # Ctrl-C too: what was reached stays usable
            with suppress(Exception):  # the first error is the one to tell
                finish_run(folder, task, certificate, finished=False)
            raise
        return finish_run(folder, task, certificate, finished=True)


def finish_run(
    folder: RunFolder, task: Task, certificate: Mapping[str, Any], *, finished: bool
) -> dict[str, Any]:
    """Write summary, certificate, ledger and report of what a run has reached."""
    from securedfl.reporting.report import write_report  # late: evaluation stands on federation

    summary = _summary(folder, task, certificate, finished=finished)
    folder.finish(summary, SCALARS)
    save(folder.path, folder.config, folder.design, folder.rows())
    write_report(folder.path)
    return summary


def _resume_points(folder: RunFolder) -> dict[str, Checkpoint]:
    """Load checkpoints and drop the rows after them, which will be computed again."""
    found = {}
    rows = folder.rows()
    kept: list[Row] = []
    for method in folder.config.methods:
        path = folder.checkpoint(method)
        if not path.exists():
            continue
        point = checkpoints.load(path)
        if point.method != method or point.identity != _identity(folder):
            raise RunFolderError(
                f"the checkpoint {path} belongs to other settings or another design than config.toml and design.json; "
                "put those back, or start a new run with another --out"
            )
        own = {row["round"]: row for row in rows if row["method"] == method and row["round"] <= point.round}
        if sorted(own) != list(range(point.round + 1)):
            raise RunFolderError(
                f"metrics.jsonl in {folder.path} lacks rounds of {method} that the checkpoint has; "
                f"delete {path} to train this method again from the start"
            )
        kept += own.values()
        found[method] = point
    if rows or found:
        folder.keep(kept)
    return found


def _train_method(
    folder: RunFolder, task: Task, team: Team, method: str, point: Checkpoint | None, observer: Observer
) -> None:
    """Run Algorithm 3 for one method: after every round a row of metrics, then the checkpoint."""
    config = folder.config
    after = None if point is None else point.round
    if after == config.rounds:
        return
    aggregate = _aggregation(folder, task, team, method)
    if point is not None:
        if point.parameters.shape[1] != team.schema.size or len(point.states) != task.peers:
            raise RunFolderError(f"the checkpoint of {method} in {folder.path} is for another model")
        team.restore(point.parameters, point.states)
    observer.method_started(method, after)
    samples = [len(share.train) for share in task.shares]
    with ExitStack() as stack:
        writer = checkpoints.Writer()
        stack.callback(writer.close)
        events = Events(folder.path, method, (after or 0) + 1) if config.tensorboard else None
        if events is not None:
            stack.callback(events.close)
        for outcome in algorithm3(
            team, aggregate, rounds=config.rounds, after=after, report=observer.peers_trained
        ):
            row = make_row(method, outcome, samples)
            folder.append(row)
            if outcome.number % config.checkpoint_every == 0 or outcome.number == config.rounds:
                saved = checkpoints.snapshot(team.parameters)
                writer.save(
                    folder.checkpoint(method),
                    Checkpoint(method, outcome.number, _identity(folder), saved, team.states()),
                )
            if events is not None:
                events.add(row)
            observer.round_finished(row)
        writer.finish()
    observer.method_finished(method)


def _aggregation(folder: RunFolder, task: Task, team: Team, method: str) -> SecureAggregation | None:
    config = folder.config
    protocol = averaging(config, method, folder.design)
    if protocol is None:
        return None

    def draws(round: int) -> Draws | None:
        if config.masks == "secret":
            return None
        return lambda peer, offset: InsecureSeededDraw(config.seed, peer=peer, round=round, offset=offset)

    weights = [float(len(share.train)) for share in task.shares] if config.weighted else None
    aggregate = partial(
        secure_aggregation, protocol=protocol, draws=draws, weights=weights, name_at=team.schema.name_at
    )

    def keep_and_aggregate(parameters: Array, round: int) -> Average:
        if round and round % config.keep_updates == 0:
            save_parameters(folder.update(method, round), parameters)
        return aggregate(parameters, round)

    return keep_and_aggregate if config.keep_updates else aggregate


def _identity(folder: RunFolder) -> dict[str, str]:
    return {"settings": folder.config.fingerprint(), "design": folder.design.hash}


def _summary(
    folder: RunFolder, task: Task, certificate: Mapping[str, Any], *, finished: bool
) -> dict[str, Any]:
    config, design, rows = folder.config, folder.design, folder.rows()
    return {
        "finished": finished,
        "dataset": config.dataset,
        "peers": config.peers,
        "rounds": config.rounds,
        "seed": config.seed,
        "samples": {
            "train": sum(len(share.train) for share in task.shares),
            "test": sum(len(share.test) for share in task.shares),
        },
        "methods": {
            method: summarise(method, [row for row in rows if row["method"] == method])
            for method in config.methods
        },
        "design": {
            "hash": design.hash,
            "gap": design.gap,
            "group_size": design.group_size,
            "method": design.method,
        },
        "certificate": dict(certificate),
        "run_dir": str(folder.path),
        "versions": {
            "securedfl": securedfl.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": str(torch.__version__),
        },
        "config": config.to_dict(),
    }
