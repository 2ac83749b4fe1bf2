"""What a federation trains and how, without torch: options, the samples of a peer, scores."""

from __future__ import annotations

from dataclasses import dataclass

from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.dealing import Dealt
from securedfl.learning.training.private import PrivateSteps
from securedfl.parameters import Array, Integers


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a peer trains: the arguments of Algorithm 3's Update, and what of the model is averaged (`Schema.of`).

    ``private`` is what differential privacy of records asks of methods that are to be private.
    """

    model: str
    width: float = 1.0
    epochs: int = 1
    batch_size: int = 32
    optimizer: str = "rmsprop"
    learning_rate: float = 0.001
    momentum: float = 0.0
    weight_decay: float = 0.0
    seed: int = 0
    integers: Integers = "own"
    local: tuple[str, ...] = ()
    private: PrivateSteps | None = None


@dataclass(frozen=True)
class PeerData:
    """The samples of one peer."""

    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array


@dataclass(frozen=True)
class Score:
    """How a model does on one peer's test data; sums, so that scores of peers can be pooled."""

    correct: int
    loss: float
    count: int


@dataclass(frozen=True)
class Task:
    """What a federation trains: the data, who holds what, and how to train."""

    dataset: Dataset
    dealt: tuple[Dealt, ...]
    options: TrainingOptions

    @property
    def peers(self) -> int:
        """The number of peers."""
        return len(self.dealt)

    @property
    def samples(self) -> list[int]:
        """The number of training samples of each peer."""
        return [len(dealt.train) for dealt in self.dealt]

    def data(self, peer: int) -> PeerData:
        """Return copies of one peer's samples."""
        d, own = self.dataset, self.dealt[peer]
        return PeerData(d.x[own.train], d.y[own.train], d.x[own.test], d.y[own.test])
