"""What a federation trains and how, without torch: options, the samples of a peer, scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from securedfl.errors import ConfigError
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.dealing import Dealt
from securedfl.learning.training.rates import Schedule, factor
from securedfl.parameters import Array, Integers

Initial = Literal["common", "own"]
"""Whether all peers begin with the same parameters, or each with its own."""

Precision = Literal["float32", "bfloat16"]
"""In which the model is run while it trains; parameters are float32 all the same."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a peer trains: the arguments of Algorithm 3's Update, and what of the model is averaged (`Schema.of`).

    docs/configuration.md tells what each of them means. Options that contradict each other are a `ConfigError`.
    """

    model: str
    width: float = 1.0
    initial: Initial = "common"
    epochs: int = 1
    steps: int | None = None
    batch_size: int = 32
    optimizer: str = "rmsprop"
    learning_rate: float = 0.001
    momentum: float = 0.0
    weight_decay: float = 0.0
    learning_rate_schedule: Schedule = "constant"
    learning_rate_decay: float = 0.1
    learning_rate_period: int | None = None
    warmup: int = 0
    gradient_norm: float | None = None
    proximal: float = 0.0
    precision: Precision = "float32"
    device: str = "cpu"
    seed: int = 0
    integers: Integers = "own"
    local: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs != 1:
            raise ConfigError(f"steps = {self.steps} and epochs = {self.epochs} are both set; give one of them")
        if self.momentum and self.optimizer in ("adam", "adamw"):
            raise ConfigError(f"momentum is set, but {self.optimizer} takes none; leave it away, or use sgd or rmsprop")
        if self.learning_rate_schedule == "step" and self.learning_rate_period is None:
            raise ConfigError(
                'learning_rate_schedule = "step" needs learning_rate_period, the rounds between two steps'
            )
        if self.learning_rate_schedule == "constant" and self.learning_rate_period is not None:
            raise ConfigError(
                "learning_rate_period is set, but the learning rate is constant; set learning_rate_schedule to cosine "
                "or step, or leave it away"
            )

    def rate(self, round: int) -> float:
        """Return the learning rate of a round."""
        return self.learning_rate * factor(
            round,
            schedule=self.learning_rate_schedule,
            decay=self.learning_rate_decay,
            period=self.learning_rate_period,
            warmup=self.warmup,
        )

    def batches(self, samples: int) -> int:
        """Return how many batches a peer with so many samples trains on in a round."""
        return self.steps or self.epochs * -(-samples // self.batch_size)


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
