"""A whole run of a simulated federation: every method trained with Algorithm 3, with metrics and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from securedfl.errors import ConfigError, RunFolderError
from securedfl.federation.algorithm3 import algorithm3
from securedfl.federation.budget.account import last_round
from securedfl.federation.budget.planning import check_privacy
from securedfl.federation.budget.task import keys_of, planned
from securedfl.federation.config import TrainConfig
from securedfl.federation.gate import Plans, pass_gate
from securedfl.federation.methods import (
    averages_differences,
    averaging,
    bringing,
    check_settings,
    choose_design,
)
from securedfl.federation.observer import Observer
from securedfl.federation.results import default_folder, leave_results
from securedfl.federation.run_folder import checkpoint as checkpoints
from securedfl.federation.run_folder.checkpoint import Checkpoint
from securedfl.federation.run_folder.files import updates_file
from securedfl.federation.run_folder.folder import RunFolder
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.summary import Summary
from securedfl.federation.run_folder.tensorboard import Events
from securedfl.federation.simulated import (
    Aggregation,
    SecureAggregation,
    SimulatedAverage,
    SimulatedPeers,
    no_aggregation,
)
from securedfl.federation.task import make_task
from securedfl.learning.models.registry import builder
from securedfl.learning.training.task import Task
from securedfl.learning.training.team import Team
from securedfl.learning.training.worker_count import make_team
from securedfl.parameters import Array
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols import InsecureSeededDraw
from securedfl.simulation.driver import Draws


def train(config: TrainConfig | None = None, *, observer: Observer | None = None, **settings: Any) -> Summary:
    """Train a simulated federation and compare methods, as ``securedfl train`` does.

    A script that sets ``workers`` above 1 needs the usual ``if __name__ == "__main__":``, because processes are
    spawned. ``securedfl report DIR`` makes a page of the run folder.

    Parameters
    ----------
    config, **settings
        Everything that decides the run, as one object or one by one (docs/configuration.md). ``protocol`` may be a
        `Protocol` of your own.
    observer
        Told about progress.

    Returns
    -------
    Summary
        What is in the run folder's summary.json: accuracies, errors, bytes and times per method, and certificates.

    Raises
    ------
    ConfigError, InvalidInputError
        Settings or data that make no run; nothing is written then.
    PrivacyError
        The settings do not withstand the colluders; the text says what would.
    RunFolderError
        The folder cannot be written, or holds a run already.

    Examples
    --------
    >>> import securedfl, tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> summary = securedfl.train(model="linear", rounds=2, methods="secured", out=folder)
    >>> summary.methods["secured"].rounds
    2
    """
    if config is None:
        config = TrainConfig.resolve(settings)
    elif settings:
        raise ConfigError("give either a configuration or settings one by one, not both")
    builder(config.model)
    check_settings(config)
    check_privacy(config)
    design = choose_design(config)
    for method in config.methods:
        # options that make no average are an error before anything is read or written
        averaging(config, method, design)
    observer = observer or Observer()
    task, plans = planned(config, make_task(config, observer.preparing), design)
    certificate = pass_gate(config, design, plans=plans)
    folder = RunFolder.create(config.out or default_folder(config), config, design)
    return _run(folder, task, certificate, plans, observer)


def resume(path: Path, *, changes: Mapping[str, Any] | None = None, observer: Observer | None = None) -> Summary:
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
        observer = observer or Observer()
        task, plans = planned(folder.config, make_task(folder.config, observer.preparing), folder.design)
        certificate = pass_gate(folder.config, folder.design, plans=plans)
        return _run(folder, task, certificate, plans, observer)


def _run(folder: RunFolder, task: Task, certificate: Mapping[str, Any], plans: Plans, observer: Observer) -> Summary:
    """Train what is left of a run; stopped or not, leave its results."""
    config = folder.config
    with ExitStack() as stack:
        stack.callback(folder.close)
        done = _resume_points(folder)
        observer.folder = folder.path
        left = sum(config.rounds - (done[m].round if m in done else 0) for m in config.methods)
        try:
            if left:
                team = stack.enter_context(make_team(task, config.workers, updates=left))
                observer.started(folder.path, config, team.workers)
                for method in config.methods:
                    _train_method(folder, task, team, method, done.pop(method, None), plans, observer)
        except BaseException:  # Ctrl-C too: what was reached stays usable
            with suppress(Exception):  # the first error is the one to tell
                leave_results(folder, task, certificate, finished=False, plans=plans)
            raise
        return leave_results(folder, task, certificate, finished=True, plans=plans)


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
        if point.method != method or point.identity != folder.identity:
            raise RunFolderError(
                f"the checkpoint {path} belongs to other settings or another design than config.toml and design.json; "
                "put those back, or start a new run with another --out"
            )
        own = {row.round: row for row in rows if row.method == method and row.round <= point.round}
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
    folder: RunFolder,
    task: Task,
    team: Team,
    method: str,
    point: Checkpoint | None,
    plans: Plans,
    observer: Observer,
) -> None:
    """Run Algorithm 3 for one method: after every round a row of metrics, then the checkpoint."""
    config = folder.config
    after = None if point is None else point.round
    plan = plans.get(method)
    rounds = last_round(plan, config.rounds)
    if after == rounds:
        return
    aggregation = _aggregation(folder, task, team, method, plan)
    averaged = no_aggregation if aggregation is None else _keeping(aggregation, folder, method)
    stepping = plan is not None and plan.unit == "record"
    peers = SimulatedPeers(team, averaged, observer.peers_trained, private=stepping)
    if point is not None:
        if point.parameters.shape[1] != team.schema.size or len(point.states) != task.peers:
            raise RunFolderError(f"the checkpoint of {method} in {folder.path} is for another model")
        team.restore(point.parameters, point.states)
        if aggregation is not None:
            aggregation.restore(team.parameters[0], point.residuals)
    observer.method_started(method, after)
    with ExitStack() as stack:
        save = stack.enter_context(checkpoints.in_background(folder.save))
        events = None
        if config.tensorboard:
            events = stack.enter_context(closing(Events(folder.path, method, (after or 0) + 1)))
        for outcome in algorithm3(peers, rounds=rounds, after=after):
            losses = list(zip(outcome.losses, task.samples, strict=False))
            row = replace(
                Row.pooled(method, outcome.number, outcome.scores, losses),
                error_mse=outcome.average.error_mse,
                error_max=outcome.average.error_max,
                bytes_per_peer=outcome.average.bytes_per_peer,
                clipped=outcome.average.clipped,
                train_seconds=outcome.train_seconds,
                average_seconds=outcome.average.seconds,
                epsilon=None if plan is None else plan.epsilon({config.peers: outcome.number}),
            )
            folder.append(row)
            if row.round % config.checkpoint_every == 0 or row.round == rounds:
                saved = checkpoints.snapshot(team.parameters)
                residuals = None if aggregation is None else aggregation.residuals
                save(Checkpoint(method, row.round, folder.identity, saved, team.states(), residuals))
            if events is not None:
                events.add(row)
            observer.round_finished(row)
    observer.method_finished(method)


def _aggregation(folder: RunFolder, task: Task, team: Team, method: str, plan: Plan | None) -> SecureAggregation | None:
    """Return how a method averages; None if it does not."""
    config = folder.config
    if averaging(config, method, folder.design) is None:
        return None

    def draws(round: int) -> Draws | None:
        if config.masks == "secret":
            return None
        return lambda peer, offset: InsecureSeededDraw(config.seed, peer=peer, round=round, offset=offset)

    return SecureAggregation(
        bringing(config, method, folder.design, team.schema.dtype, plan),
        draws=draws,
        # another stream than that of the masks
        rounding=lambda round, peer: InsecureSeededDraw(config.seed, peer=-1 - peer, round=round),
        differences=averages_differences(config, method),
        noise=lambda round, peer: keys_of(config, peer, round),
        weights=[float(count) for count in task.samples] if config.weighted else None,
        name_at=team.schema.name_at,
    )


def _keeping(aggregate: Aggregation, folder: RunFolder, method: str) -> Aggregation:
    """Return the same, that also keeps what peers bring from time to time."""
    every = folder.config.keep_updates

    def keep_and_aggregate(parameters: Array, round: int) -> SimulatedAverage:
        if round and round % every == 0:
            checkpoints.save_parameters(updates_file(folder.path, method, round), parameters)
        return aggregate(parameters, round)

    return keep_and_aggregate if every else aggregate
