"""A known data set, dealt to the peers, and one of our own models. torch is imported when training begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from securedfl.learning.data.coding import Coding
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.dealing import Dealt
from securedfl.learning.slices import Slices
from securedfl.learning.training.private import PrivateSteps
from securedfl.learning.training.task import PeerSamples, Recipe, ScoredOn, Task, TrainingOptions
from securedfl.parameters import Array, Schema

if TYPE_CHECKING:
    from securedfl.learning.training.trainer import LocalTrainer

PROBES = 3
PROBE_BATCHES = 2


@dataclass(frozen=True)
class KnownTask(Task):
    """A data set, who holds what, how to train one of our own models, and the common test set, if there is one.

    ``private`` is what differential privacy of records asks of methods that are to be private.
    """

    dataset: Dataset
    dealt: tuple[Dealt, ...]
    options: TrainingOptions
    common: Dataset | None = None
    private: PrivateSteps | None = None

    @property
    def peers(self) -> int:
        """The number of peers."""
        return len(self.dealt)

    @property
    def coding(self) -> Coding | None:
        """What classes and features mean, where the data set came from a folder."""
        return self.dataset.coding

    @property
    def samples(self) -> list[int]:
        """The number of training samples of each peer."""
        return [len(dealt.train) for dealt in self.dealt]

    @property
    def loads(self) -> list[int]:
        """How much work each peer is, in samples."""
        return self.samples

    @property
    def recipe(self) -> Recipe:
        """How to build the model."""
        return Recipe(self.options.model, self.dataset.shape, self.dataset.classes, self.options.width)

    def peer_samples(self) -> list[PeerSamples]:
        """Return how many samples each peer has; of sequences, every position has a label."""
        labels = [self.dataset.y[own.train].reshape(-1) for own in self.dealt]
        counts = [tuple(np.bincount(own, minlength=self.dataset.classes).tolist()) for own in labels]
        return [PeerSamples(len(own.train), len(own.test), n) for own, n in zip(self.dealt, counts, strict=True)]

    def all_tests(self) -> tuple[Array, Array] | None:
        """Return the test data of all peers together, if any of them has some."""
        at = self.tested().samples
        return (self.dataset.x[at], self.dataset.y[at]) if len(at) else None

    def tested(self) -> ScoredOn:
        """Return which samples those are."""
        at = np.concatenate([dealt.test for dealt in self.dealt])
        users = at if self.dataset.users is None else self.dataset.users[at]
        return ScoredOn(at.astype(np.int32), users.astype(np.int32))

    def maker(self, peers: Iterable[int]) -> Callable[[], LocalTrainer]:
        """Return what makes the trainer of some of the peers, with their samples."""
        from securedfl.learning.training.trainer import LocalTrainer

        data = Slices(self.dataset, {peer: self.dealt[peer] for peer in peers})
        # scored again and again, so that it is in memory
        common = None if self.common is None else (self.common.x[:], self.common.y)
        return partial(LocalTrainer, data, self.dataset.shape, self.dataset.classes, self.options, common, self.private)

    def schema(self) -> Schema:
        """Return what a row holds."""
        return self.maker([])().schema

    def buffers(self) -> tuple[slice, ...]:
        """Return which parts of a row are no trained parameters."""
        return self.maker([])().buffers

    @property
    def copies(self) -> int:
        """How many vectors as long as its row a peer's optimiser keeps."""
        return self.options.slots if self.options.between_rounds == "keep" else 0

    def data_bytes(self) -> list[int]:
        """Return how many bytes copies of each peer's samples take."""
        sample = (self.dataset.x.nbytes + self.dataset.y.nbytes) // len(self.dataset)
        return [(len(own.train) + len(own.test)) * sample for own in self.dealt]

    def seconds(self) -> float:
        """Estimate how long one update of all peers takes in one process, from a few batches on a throw-away copy."""
        from securedfl.learning.training.trainer import one_thread

        peer = int(np.argmax(self.samples))
        with one_thread():
            trainer = self.maker([peer])()
            seconds = min(trainer.seconds_per_batch(peer, batches=PROBE_BATCHES) for _ in range(PROBES))
        return seconds * sum(map(self.options.batches, self.samples))
