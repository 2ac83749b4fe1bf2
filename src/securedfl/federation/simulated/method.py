"""One method of a simulated run: Algorithm 3, and after every round a row of metrics, then the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from securedfl.errors import RunFolderError
from securedfl.federation.algorithm3 import algorithm3
from securedfl.federation.budget.account import last_round
from securedfl.federation.methods import main_method, members, protocol_of
from securedfl.federation.observer import Observer
from securedfl.federation.results import Counts
from securedfl.federation.run_folder import checkpoint as checkpoints
from securedfl.federation.run_folder.checkpoint import Checkpoint
from securedfl.federation.run_folder.correctness import CorrectKeeper
from securedfl.federation.run_folder.files import updates_file
from securedfl.federation.run_folder.folder import RunFolder
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.model import About, model_file, personal_parts, save_model
from securedfl.federation.run_folder.trackers import trackers
from securedfl.federation.simulated.aggregation import SecureAggregation, rows_of
from securedfl.federation.simulated.peers import SimulatedPeers, drawn_in
from securedfl.learning.training.task import State, Task
from securedfl.learning.training.team import Team
from securedfl.parameters import Array
from securedfl.privacy.budget.plan import Plan


def train_method(
    folder: RunFolder,
    task: Task,
    team: Team,
    method: str,
    point: Checkpoint | None,
    counts: Counts,
    plan: Plan | None,
    observer: Observer,
) -> None:
    """Train a method from its beginning, or from the checkpoint that it was stopped at; leave its model."""
    config = folder.config
    after, rounds = None if point is None else point.round, last_round(plan, config.rounds)
    if after == rounds and not lacks_model(folder, method):
        return
    aggregation = None
    if protocol_of(config, method) is not None:
        aggregation = SecureAggregation(
            config, method, folder.design, team.schema, buffers=team.buffers, samples=counts.train, plan=plan
        )
    peers = SimulatedPeers(
        team,
        aggregation,
        observer.peers_trained,
        members=drawn_in(config),
        private=plan is not None and plan.unit == "record",
        keep=_keeping(folder, method) if aggregation is not None and config.keep_updates else None,
    )
    before = [] if point is None else [row for row in folder.rows() if row.method == method]
    if point is not None:
        _restore(point, folder, team, aggregation, before)
    observer.method_started(method, after)
    # where all hold the same model, one is scored for all
    same = aggregation is not None and not config.local
    correct = CorrectKeeper(folder.path, method, task.tested(), before)
    with ExitStack() as stack:
        save = stack.enter_context(checkpoints.in_background(correct.before(folder.save)))
        track = stack.enter_context(trackers(folder.path, config, method, 0 if after is None else after + 1))
        for outcome in algorithm3(peers, rounds=rounds, after=after):
            common = team.evaluate_common((0,) if same else range(config.peers))
            counts.score(outcome.scores, common)
            row = replace(
                counts.row(config, method, outcome, common),
                epsilon=None if plan is None else plan.epsilon({config.peers: outcome.number}),
                all_accuracy=_on_all(team, task) if outcome.number == rounds and not same else None,
            )
            folder.append(row)
            correct.see(row, peers.right)
            if row.round % config.checkpoint_every == 0 or row.round == rounds:
                save(_checkpoint(folder, team, method, row.round, aggregation))
            track(row)
            observer.round_finished(row)
    if aggregation is not None:
        counts.stay(_leave_model(folder, task, team, method, rounds))
    observer.method_finished(method)


def lacks_model(folder: RunFolder, method: str) -> bool:
    """Tell whether a method has left no model: a run may be killed between its last checkpoint and that."""
    config = folder.config
    path = model_file(folder.path, method, main_method(config.methods))
    return protocol_of(config, method) is not None and not path.exists()


def _checkpoint(
    folder: RunFolder, team: Team, method: str, round: int, aggregation: SecureAggregation | None
) -> Checkpoint:
    """Return where a method stands after a round."""
    residuals = common = None
    if aggregation is not None:
        residuals = aggregation.residuals
        # without an optimiser, what all peers hold is the model, which is in every row
        common = None if folder.config.common_optimizer == "none" else aggregation.common
    return Checkpoint(
        method,
        round,
        folder.identity,
        checkpoints.snapshot(team.parameters),
        team.states(),
        residuals,
        common,
    )


def _restore(
    point: Checkpoint, folder: RunFolder, team: Team, aggregation: SecureAggregation | None, before: Sequence[Row]
) -> None:
    """Go on where a method was stopped, after the rows that it wrote before."""
    if point.parameters.shape[1] != team.schema.size or len(point.states) != folder.config.peers:
        raise RunFolderError(f"the checkpoint of {point.method} in {folder.path} is for another model")
    team.restore(point.parameters, point.states)
    if aggregation is not None:
        # of the last round whose messages were passed, where they are not in all
        sent = next((row.bytes_per_peer for row in reversed(before) if row.round and row.messages), 0.0)
        aggregation.restore(team.parameters[0] if point.common is None else point.common, point.residuals, sent)


def _on_all(team: Team, task: Task) -> tuple[float, ...] | None:
    """Return the accuracy of each peer's model on the test data of all peers, if they are known."""
    data = task.all_tests()
    return None if data is None else tuple(score.correct / score.count for score in team.evaluate_on(data))


def _leave_model(folder: RunFolder, task: Task, team: Team, method: str, round: int) -> list[State]:
    """Write the common model by name; return what of it stays with each peer."""
    homes = team.homes()
    about = About.of(method=method, round=round, recipe=task.recipe, personal=personal_parts(homes))
    save_model(model_file(folder.path, method, main_method(folder.config.methods)), team.whole(0), about)
    return homes


def _keeping(folder: RunFolder, method: str) -> Callable[[Array, int], None]:
    """Return what keeps the parameters that peers bring to an average, from time to time."""

    def keep(parameters: Array, round: int) -> None:
        if round and round % folder.config.keep_updates == 0:
            rows = rows_of(members(folder.config, round), parameters)
            checkpoints.save_parameters(updates_file(folder.path, method, round), np.stack(rows))

    return keep
