"""Local training: Algorithm 3's Update, and the score of a model on a peer's own test data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from securedfl.arrays import to_numpy
from securedfl.errors import InvalidInputError, unknown
from securedfl.learning.models.flat import FlatModel, canonical
from securedfl.learning.models.registry import build
from securedfl.learning.seeds import torch_seed
from securedfl.learning.training.clipping import ClippedGradients
from securedfl.learning.training.task import PeerData, Score, Task, TrainingOptions
from securedfl.parameters import Array

State = dict[str, Array]
"""What a peer keeps from round to round besides its row: its optimiser's state, and what stays at home."""

HOME = "home."
"""Before the names of what stays at home, in a state."""

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}

EVALUATION_BATCH = 256
"""Samples that are scored at a time, at most: more would leave the processor's caches and take twice as long."""


class LocalTrainer:
    """Trains any number of peers one after the other with a single model.

    What belongs to a peer (parameters, what stays at home, optimiser state, random numbers) is exchanged around the
    model, so that the result for one peer never depends on which others are trained here.

    Parameters
    ----------
    data
        The samples of the peers that are trained here, by peer number.
    shape, classes
        The shape of one sample and the number of classes.
    options
        How to train.
    """

    def __init__(
        self, data: Mapping[int, PeerData], shape: tuple[int, ...], classes: int, options: TrainingOptions
    ) -> None:
        self.options = options
        self._shape, self._classes = shape, classes
        # only the structure counts; without a seed of its own the caller's generator would move
        with _seeded(options.seed):
            self.model = self._build()
        self._data = {
            peer: tuple(map(canonical, (d.train_x, d.train_y, d.test_x, d.test_y))) for peer, d in data.items()
        }
        self._loss = nn.CrossEntropyLoss()
        self._total_loss = nn.CrossEntropyLoss(reduction="sum")
        self._optimizers = {peer: self._optimizer() for peer in self._data}
        self._home: dict[int, State] = {}

    @classmethod
    def of(cls, task: Task, peers: Iterable[int]) -> Self:
        """Return a trainer for some of the peers of a task."""
        data = {peer: task.data(peer) for peer in peers}
        return cls(data, task.dataset.shape, task.dataset.classes, task.options)

    def initialise(self, peer: int, row: Array) -> None:
        """Write w_k^0, freshly drawn parameters that differ from peer to peer, and start the optimiser afresh."""
        self._optimizers[peer] = self._optimizer()
        with _seeded(torch_seed(self.options.seed, "initialise", peer)):
            self._home[peer] = self._build().write(row)

    def _build(self) -> FlatModel:
        o = self.options
        module = build(o.model, self._shape, self._classes, o.width)
        return FlatModel(module, integers=o.integers, local=o.local)

    def load(self, peer: int, row: Array) -> None:
        """Make the model that of a peer: its row, and what it has at home."""
        if peer not in self._home:
            # a real peer that lost its own values while the others went on begins with fresh ones
            self.initialise(peer, np.empty_like(row))
        self.model.read(row, self._home[peer])

    def update(self, peer: int, round: int, row: Array) -> float:
        """Train for the local epochs, in place on the peer's flat row, and return the mean loss over all batches."""
        x, y, _, _ = self._data[peer]
        total = torch.zeros(())
        self.load(peer, row)
        self.model.module.train()
        with _seeded(torch_seed(self.options.seed, "update", peer, round)):
            for _ in range(self.options.epochs):
                order = torch.randperm(len(x))
                # gathered once: slices of it cost nothing
                total += self._epoch(self._optimizers[peer], x[order], y[order])
        self._home[peer] = self.model.write(row)
        mean = float(total) / (len(x) * self.options.epochs)
        if not (np.isfinite(mean) and np.isfinite(row.sum(dtype=np.float64))):
            raise InvalidInputError(
                f"training of peer {peer} diverged in round {round}: its loss or parameters are not finite; "
                f"lower learning_rate (now {self.options.learning_rate})"
            )
        return mean

    def private_update(self, peer: int, round: int, row: Array) -> float:
        """Take the steps of `PrivateSteps`; return the mean loss over the batches, NaN if they were empty.

        With distributed noise the row becomes the step that this peer brings; with local noise, its parameters.
        """
        wish = self.options.private
        assert wish is not None  # noqa: S101 - the caller asks for it
        x, y, _, _ = self._data[peer]
        self.load(peer, row)
        self.model.module.train()
        clipped = ClippedGradients(self.model, self._losses)
        total, count = 0.0, 0
        with _seeded(torch_seed(self.options.seed, "update", peer, round)):
            for step in range(wish.steps):
                chosen = torch.from_numpy(wish.chance.batch(len(x), peer, round, step))
                batch_x, batch_y = x[chosen], y[chosen]
                total += float(clipped.add(batch_x, batch_y, wish.clip))
                count += len(batch_x)
                if wish.scale is not None:
                    row[:] = self.model.gradient.numpy()
                    row *= -wish.scale
                    break
                noisy = wish.chance.noisy(self.model.gradient.numpy(), peer, round, step)
                self.model.gradient.copy_(torch.from_numpy(noisy / wish.expected))
                self._optimizers[peer].step()
            else:
                self._home[peer] = self.model.write(row)
        return total / count if count else math.nan

    def _losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample: of a sequence, the mean over its positions."""
        flat = nn.functional.cross_entropy(scores.reshape(-1, self._classes), labels.reshape(-1), reduction="none")
        return flat.view(len(labels), -1).mean(1)

    def _epoch(self, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
        """Take one step per mini-batch and return the sum of the samples' losses."""
        total = torch.zeros(())
        for x_batch, y_batch in _batches(x, y, self.options.batch_size):
            self.model.gradient.zero_()
            scores = self.model.module(x_batch).reshape(-1, self._classes)
            loss = self._loss(scores, y_batch.reshape(-1))
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x_batch)
        return total

    def seconds_per_batch(self, peer: int, *, batches: int) -> float:
        """Measure how long a step takes; spoils the model, so use a trainer that is thrown away."""
        x, y, _, _ = self._data[peer]
        x, y = (array[: batches * self.options.batch_size] for array in (x, y))
        self.model.module.train()
        started = time.perf_counter()
        self._epoch(self._optimizers[peer], x, y)
        return (time.perf_counter() - started) / math.ceil(len(x) / self.options.batch_size)

    def evaluate(self, peer: int, row: Array) -> Score:
        """Score the parameters of a row, with what the peer has at home, on its test data."""
        _, _, x, y = self._data[peer]
        self.load(peer, row)
        module = self.model.module
        module.eval()
        correct, loss, count = 0, 0.0, 0
        with torch.inference_mode():
            # equal parts: a small rest would be unlike the others for models that normalise by the batch
            parts = max(1, math.ceil(len(x) / EVALUATION_BATCH))
            for x_batch, y_batch in zip(x.tensor_split(parts), y.tensor_split(parts), strict=True):
                labels = y_batch.reshape(-1)
                scores = module(x_batch).reshape(-1, self._classes)
                correct += int((scores.argmax(dim=1) == labels).sum())
                loss += float(self._total_loss(scores, labels))
                count += len(labels)
        return Score(correct, loss, count)

    def state(self, peer: int) -> State:
        """Return a copy of what the peer keeps besides its row."""
        state = self._optimizers[peer].state.get(self.model.trained, {})
        kept = {name: np.array(to_numpy(value)) for name, value in state.items() if isinstance(value, Tensor)}
        return kept | {HOME + name: value for name, value in self._home.get(peer, {}).items()}

    def restore(self, peer: int, state: State) -> None:
        """Give the peer an optimiser with that state, and what it had at home."""
        self._home[peer] = {
            name.removeprefix(HOME): np.array(value) for name, value in state.items() if name.startswith(HOME)
        }
        optimizer = self._optimizers[peer] = self._optimizer()
        kept = {name: torch.from_numpy(np.array(v)) for name, v in state.items() if not name.startswith(HOME)}
        if kept:
            like = self.model.trained
            optimizer.state[like] = {
                name: value.to(like.dtype) if value.shape == like.shape else value for name, value in kept.items()
            }

    def _optimizer(self) -> torch.optim.Optimizer:
        o = self.options
        if o.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", o.optimizer, OPTIMIZERS)
        momentum = {} if o.optimizer == "adam" else {"momentum": o.momentum}
        # one long parameter: the multi-tensor variants would only add overhead
        return OPTIMIZERS[o.optimizer](
            [self.model.trained],
            lr=o.learning_rate,
            weight_decay=o.weight_decay,
            foreach=False,
            **momentum,
        )


def _batches(x: Tensor, y: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut samples and labels into batches; views, not copies."""
    for start in range(0, len(x), size):
        yield x[start : start + size], y[start : start + size]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, because sums in another order give other bits; restore the caller's setting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator (batches, dropout, initial parameters) and give the caller's state back."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
