"""What a real peer trains: a known data set with a known model, or an app of the user's."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.errors import ConfigError
from securedfl.federation.apps.app import Entry
from securedfl.federation.apps.learner import AppLearner, Learner
from securedfl.federation.apps.settings import peer_settings, start_seed
from securedfl.federation.budget.task import planned
from securedfl.federation.methods import choose_design
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.task import make_task
from securedfl.learning.training.task import Recipe, Score
from securedfl.network.wire.values import is_loopback
from securedfl.parameters import Array


class KnownLearner:
    """A data set of the registry, dealt to the peers as `securedfl train` deals it; for trials on one machine."""

    def __init__(self, federation: FederationConfig, config: PeerConfig) -> None:
        # late: an app may do without torch
        import torch

        # sums in another order give other bits
        torch.set_num_threads(1)
        self._me = config.position(federation)
        training = federation.training.model_copy(update={"data_dir": config.data_dir, "device": config.device})
        task, plans = planned(training, make_task(training), choose_design(training))
        self._private = any(plan.unit == "record" for plan in plans.values())
        self._trainer = task.maker([self._me])()
        self.schema, self.buffers = self._trainer.schema, self._trainer.buffers
        self.held = task.held()[self._me]
        self.samples = self.held.train
        self.recipe: Recipe | None = task.recipe
        self.common: Mapping[str, Any] = {}

    def initial(self) -> Array:
        """Return w_k^0."""
        row = np.zeros(self.schema.size, dtype=np.float32)
        self._trainer.initialise(self._me, row)
        return row

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Train for the local epochs."""
        row = np.array(vector)
        train = self._trainer.private_update if self._private else self._trainer.update
        return row, train(self._me, round, row)

    def evaluate(self, vector: Array) -> Score | None:
        """Score on this peer's test data."""
        return self._trainer.evaluate(self._me, np.array(vector))

    def evaluate_common(self, vector: Array) -> Score | None:
        """Score on the common test set; one peer is enough, because all of them hold the same model."""
        return None if self._me else self._trainer.evaluate_common(self._me, np.array(vector))

    def whole(self, vector: Array) -> dict[str, Array]:
        """Return the model by name."""
        return self._trainer.whole(self._me, np.array(vector))

    def state(self) -> Any:
        """Return the optimiser's state and what stays at home."""
        return self._trainer.state(self._me)

    def restore(self, state: Any) -> None:
        """Go on with what `state` gave."""
        self._trainer.restore(self._me, state)


def _on_this_machine(federation: FederationConfig) -> int:
    """Return how many peers have an address of the machine itself, as in a trial."""
    return sum(is_loopback(member.host) for member in federation.members)


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
    training = federation.training
    if federation.entry is None:
        return KnownLearner(federation, config)
    check_own_training(federation, f"the app {federation.entry}")
    training = training.model_copy(update={"device": config.device})
    settings = peer_settings(training, config.position(federation), name=config.name, data=config.data)
    entry = Entry.of(federation.entry, folder)
    app = entry.make(settings, start_seed(training, settings["number"]))
    # torch begins every process at the same known number; whoever knows it could repeat what training draws
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(secrets.randbits(63))
        # processes that share one machine in a trial must not wait for each other's threads
        if "OMP_NUM_THREADS" not in os.environ and (here := _on_this_machine(federation)) > 1:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // here))
    return AppLearner(app, integers=training.integers, local=training.local, where=entry.at(settings))
