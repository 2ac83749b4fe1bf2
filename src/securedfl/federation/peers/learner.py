"""What a real peer trains: a known data set with a known model, or an app of the user's."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.errors import ConfigError
from securedfl.federation.apps.app import EntryPoint
from securedfl.federation.apps.settings import peer_settings, start_seed
from securedfl.federation.apps.trainer import AppTrainer, size_of
from securedfl.federation.budget.task import planned
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.task import make_task
from securedfl.learning.training.task import PeerSamples, Recipe, Score, State, Trainer
from securedfl.network.wire.values import is_loopback
from securedfl.parameters import Array


@dataclass(frozen=True, kw_only=True)
class Learner:
    """What one real peer trains, seen as flat vectors.

    Attributes
    ----------
    trainer, me
        Who trains it, and this peer's number there.
    train
        The trainer's update, or its private one.
    samples
        How many the peer has.
    recipe
        How to build the model; None if only its app knows.
    common, coding
        The settings that its app chooses for the common model; and a hash of what classes and features mean in its
        data, if that is known.
    """

    trainer: Trainer
    me: int
    train: Callable[[int, int, Array], float | None]
    samples: PeerSamples
    recipe: Recipe | None = None
    common: Mapping[str, Any] = field(default_factory=dict)
    coding: str = ""

    def initial(self) -> Array:
        """Return w_k^0."""
        row = np.zeros(self.trainer.schema.size, dtype=self.trainer.schema.dtype)
        self.trainer.initialise(self.me, row)
        return row

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Train from the given parameters; return new ones and the mean loss, if known."""
        row = np.array(vector)
        return row, self.train(self.me, round, row)

    def evaluate(self, vector: Array) -> Score | None:
        """Score parameters on this peer's own test data, if there are any."""
        return self.trainer.evaluate(self.me, np.array(vector))

    def evaluate_common(self, vector: Array) -> Score | None:
        """Score parameters on test data that is the same for all peers, if there are any."""
        return self.trainer.evaluate_common(self.me, np.array(vector))

    def whole(self, vector: Array) -> State:
        """Return the whole model by name, what stays at home included."""
        return self.trainer.whole(self.me, np.array(vector))

    def state(self) -> Any:
        """Return what it keeps besides: the optimiser's state and what stays at home, as `states` can keep it."""
        return self.trainer.state(self.me)

    def restore(self, state: Any) -> None:
        """Go on with what `state` gave."""
        self.trainer.restore(self.me, state)


def known_learner(federation: FederationConfig, config: PeerConfig) -> Learner:
    """Return the part of a known data set that `securedfl train` deals to this peer; for trials on one machine."""
    # late: an app may do without torch
    import torch

    # sums in another order give other bits
    torch.set_num_threads(1)
    me = config.position(federation)
    if why := federation.no_part(config.name):
        raise ConfigError(why)
    training = federation.training.model_copy(update={"data_dir": config.data_dir, "device": config.device})
    task, plans = planned(training, make_task(training), federation.design)
    if me:
        # all peers hold the same model, so that one is enough to score it
        task = replace(task, common=None)
    trainer, private = task.maker([me])(), any(plan.unit == "record" for plan in plans.values())
    train = trainer.private_update if private else trainer.update
    return Learner(trainer=trainer, me=me, train=train, samples=task.peer_samples()[me], recipe=task.recipe)


def _on_this_machine(federation: FederationConfig) -> int:
    """Return how many peers have an address of the machine itself, as in a trial."""
    return sum(is_loopback(line.host) for line in federation.roster)


def check_own_training(federation: FederationConfig, whose: str) -> None:
    """Refuse a promise about records where this software does not take the steps itself."""
    privacy = federation.training.privacy
    if privacy is not None and privacy.unit == "record":
        raise ConfigError(
            f'unit = "record" needs clipped gradients of Poisson batches, and {whose} trains by itself; take '
            'unit = "site", which clips whatever it brings, or a known data set'
        )


def make_learner(federation: FederationConfig, config: PeerConfig, folder: Path) -> Learner:
    """Return what this peer trains; ``folder`` is where entry points are looked for first."""
    if federation.entry is None:
        learner = known_learner(federation, config)
    else:
        learner = _app_learner(federation, config, federation.entry, folder)
    # before the log begins, which others wait for
    federation.check_weight(config.name, learner.samples.train)
    return learner


def _app_learner(federation: FederationConfig, config: PeerConfig, name: str, folder: Path) -> Learner:
    """Return what an app gives this peer to train."""
    check_own_training(federation, f"the app {name}")
    training = federation.training.model_copy(update={"device": config.device})
    me, entry = config.position(federation), EntryPoint.of(name, folder)
    settings = peer_settings(training, me, name=config.name, data=config.data)
    app = entry.make(settings, start_seed(training, settings["number"]))
    # torch begins every process at the same known number; whoever knows it could repeat what training draws
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(secrets.randbits(63))
        # processes that share one machine in a trial must not wait for each other's threads
        if "OMP_NUM_THREADS" not in os.environ and (here := _on_this_machine(federation)) > 1:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // here))
    trainer = AppTrainer(integers=training.integers, local=training.local)
    trainer.take(me, app, entry.at(settings))
    return Learner(
        trainer=trainer,
        me=me,
        train=trainer.update,
        samples=PeerSamples(size_of(app, entry.at(settings))),
        common=app.common,
        coding=app.coding,
    )
