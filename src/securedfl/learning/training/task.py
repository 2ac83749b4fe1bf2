"""What a federation trains and how, without torch: options, what peers hold, scores, and who trains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.learning.data.coding import Coding
from securedfl.parameters import Array, Integers, Schema

State = dict[str, Array]
"""What a peer keeps from round to round besides its row: its optimiser's state, and what stays at home."""

HOME = "home."
"""Before the names of what stays at home, in a state."""

Initial = Literal["common", "own"]
"""Whether all peers begin with the same parameters, or each with its own."""

BetweenRounds = Literal["keep", "forget"]
"""Whether a peer's optimiser goes on where it was when the peer last trained, or begins afresh."""

Precision = Literal["float32", "bfloat16"]
"""In which the model is run while it trains; parameters are float32 all the same."""

RateSchedule = Literal["constant", "cosine", "step"]
"""How the learning rate goes over the rounds of federated learning."""

Engine = Literal["local", "ray"]
"""Who runs the processes that train simulated peers: this process itself, or a Ray cluster."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a peer trains: the arguments of Algorithm 3's Update, and what of the model is averaged (`Schema.of`).

    docs/reference/configuration.md tells what each of them means. Options that contradict each other are
    a `ConfigError`.
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
    learning_rate_schedule: RateSchedule = "constant"
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
    between_rounds: BetweenRounds = "keep"

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
        """Return the learning rate of a round; the first one that trains is 1.

        It rises over the rounds of ``warmup`` in equal steps: with 4, by 1/5, 2/5, 3/5 and 4/5. ``step`` multiplies it
        by the decay after every period; ``cosine`` falls to the decay over one period along half a wave.

        Examples
        --------
        >>> options = TrainingOptions(model="mlp", learning_rate_schedule="step", learning_rate_period=2)
        >>> [round(options.rate(r), 6) for r in (1, 2, 3)]
        [0.001, 0.001, 0.0001]
        """
        decay, period = self.learning_rate_decay, self.learning_rate_period
        factor = min(1.0, round / (self.warmup + 1))
        if self.learning_rate_schedule == "step" and period is not None:
            factor *= decay ** ((round - 1) // period)
        elif self.learning_rate_schedule == "cosine" and period is not None:
            done = min(round - 1, period) / period
            factor *= decay + (1 - decay) * (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * factor

    @property
    def slots(self) -> int:
        """How many vectors as long as the model the optimiser keeps."""
        return {"adam": 2, "adamw": 2, "rmsprop": 1}.get(self.optimizer, 0) + bool(self.momentum)

    def batches(self, samples: int) -> int:
        """Return how many batches a peer with so many samples trains on in a round."""
        return self.steps or self.epochs * -(-samples // self.batch_size)


@dataclass(frozen=True)
class PeerSamples:
    """How many samples one peer has.

    Attributes
    ----------
    train, test
        Its samples; None where only its scores will tell how many it tests on.
    classes
        How many training labels it has of each class; None where labels are nobody's to know but the app's.
    name
        Of a real peer.
    """

    train: int
    test: int | None = None
    classes: tuple[int, ...] | None = None
    name: str = ""


@dataclass(frozen=True)
class ScoredOn:
    """The test samples of all peers, in the order of the peers: which they are in the data set, and whom each is from.

    Where users are unknown, every sample counts as one of its own.
    """

    samples: Array
    users: Array


@dataclass(frozen=True)
class Recipe:
    """How to build a model that we know by name: for samples of which shape, how many classes, how wide."""

    model: str
    shape: tuple[int, ...]
    classes: int
    width: float


@dataclass(frozen=True)
class Score:
    """How a model does on one peer's test data; sums, so that scores of peers can be pooled."""

    correct: int
    loss: float
    count: int


def check_trained(peer: int, round: int, row: Array, loss: float | None, advice: str) -> None:
    """Raise `InvalidInputError`, with advice, if what training made of a row is not finite."""
    if not (np.isfinite(row.sum(dtype=np.float64)) and (loss is None or np.isfinite(loss))):
        raise InvalidInputError(
            f"training of peer {peer} diverged in round {round}: its loss or parameters are not finite; {advice}"
        )


class Trainer(Protocol):
    """Trains some of the peers of a federation, each from its flat row, and in place."""

    @property
    def schema(self) -> Schema:
        """Of a row."""

    @property
    def buffers(self) -> tuple[slice, ...]:
        """Which parts of a row are no trained parameters."""

    def initialise(self, peer: int, row: Array) -> None:
        """Write w_k^0, and start the peer afresh."""

    def update(self, peer: int, round: int, row: Array) -> float | None:
        """Train a round, and return the mean loss if it is known."""

    def evaluate(self, peer: int, row: Array, data: tuple[Array, Array] | None = None) -> Score | None:
        """Score the parameters of a row on the peer's own test data, if it has any, or on other ``data``."""

    def evaluate_common(self, peer: int, row: Array) -> Score | None:
        """Score them on test data that is the same for all peers, if there is some."""

    def samples(self, peer: int) -> int:
        """Return how many training samples the peer has."""

    def whole(self, peer: int, row: Array) -> State:
        """Return the peer's whole model by name, what stays at home included."""

    def home(self, peer: int) -> State:
        """Return what of the peer's model stays at home, by name."""

    def state(self, peer: int) -> State:
        """Return a copy of what the peer keeps besides its row."""

    def restore(self, peer: int, state: State) -> None:
        """Go on with what `state` gave."""


Maker = Callable[[], Trainer]
"""Makes the trainer of some peers; another process can be sent it, with the samples of these peers only."""


class Task(Protocol):
    """What a federation trains: a known data set and model, or an app of the user's, of which less is known."""

    @property
    def peers(self) -> int:
        """The number of peers."""

    @property
    def loads(self) -> list[int]:
        """About how much work each peer is, in a unit of its own; alike, if that is not known."""
        return [1] * self.peers

    @property
    def movable(self) -> bool:
        """Whether other processes can train it."""
        return True

    @property
    def recipe(self) -> Recipe | None:
        """How to build the model; None if only its maker knows."""
        return None

    @property
    def coding(self) -> Coding | None:
        """What classes and features mean, where that is known."""
        return None

    def peer_samples(self) -> list[PeerSamples] | None:
        """Return how many samples each peer has; None if only its app knows."""
        return None

    def all_tests(self) -> tuple[Array, Array] | None:
        """Return the test data of all peers together, if this process may have them."""
        return None

    def tested(self) -> ScoredOn | None:
        """Return which samples those are, if they are known one by one."""
        return None

    def maker(self, peers: Iterable[int]) -> Maker:
        """Return what makes the trainer of some of the peers."""

    def schema(self) -> Schema:
        """Return what a row holds."""

    def buffers(self) -> tuple[slice, ...]:
        """Return which parts of a row are no trained parameters."""

    @property
    def copies(self) -> int:
        """About how many vectors as long as its row a peer keeps besides, where it is trained."""

    def data_bytes(self) -> list[int]:
        """Estimate how many bytes each peer's samples take there; 0 if that is not known."""
        return [0] * self.peers

    def seconds(self) -> float:
        """Estimate how long one update of all peers takes in one process; 0 if that cannot be known."""
