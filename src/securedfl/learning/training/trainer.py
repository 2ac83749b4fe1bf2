"""Local training: Algorithm 3's Update, and the score of a model on a peer's own test data."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from securedfl.arrays import to_numpy
from securedfl.errors import ConfigError
from securedfl.learning.devices import find_device, seeded
from securedfl.learning.models.flat import FlatModel, canonical
from securedfl.learning.models.registry import MODELS, builder
from securedfl.learning.optimizers import make_optimizer
from securedfl.learning.seeds import torch_seed
from securedfl.learning.slices import PeerData, Slices
from securedfl.learning.training.clipping import ClippedGradients
from securedfl.learning.training.common_optimizer import buffers_of
from securedfl.learning.training.private import PrivateSteps
from securedfl.learning.training.task import HOME, Score, State, TrainingOptions, check_trained
from securedfl.parameters import Array, Schema

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
    common
        Samples and labels of the common test set, if there is one.
    private
        What `private_update` does.
    """

    def __init__(
        self,
        data: Mapping[int, PeerData],
        shape: tuple[int, ...],
        classes: int,
        options: TrainingOptions,
        common: tuple[Array, Array] | None = None,
        private: PrivateSteps | None = None,
    ) -> None:
        self.options, self._private = options, private
        self._device = find_device(options.device)
        self._shape, self._classes, self._builder = shape, classes, builder(options.model)
        # only the structure counts; without a seed of its own the caller's generator would move
        with seeded(options.seed, self._device):
            self.model = self._build()
        self._data = data
        self._held: dict[int, tuple[Tensor, ...]] = {}
        self._common = None if common is None else tuple(canonical(a).to(self._device) for a in common)
        # of peers that keep theirs; all others share one, which begins afresh for each of them
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._shared = make_optimizer(self.model.trained, self.options)
        self._home: dict[int, State] = {}
        self._first: tuple[Array, State] | None = None
        self._training: bool | None = None

    @property
    def schema(self) -> Schema:
        """Of a row."""
        return self.model.schema

    @property
    def buffers(self) -> tuple[slice, ...]:
        """Which parts of a row are no trained parameters."""
        return buffers_of(self.schema, self.model.module)

    def samples(self, peer: int) -> int:
        """Return how many training samples the peer has."""
        return self._counts(peer)[0]

    def _counts(self, peer: int) -> tuple[int, int]:
        """Return how many samples the peer has for training and for testing."""
        if isinstance(self._data, Slices):
            return self._data.counts(peer)
        return len(self._data[peer].train_y), len(self._data[peer].test_y)

    @property
    def _keeps(self) -> bool:
        return self.options.between_rounds == "keep"

    def _samples(self, peer: int) -> tuple[Tensor, ...]:
        """Return a peer's samples and labels for training and testing; held where peers keep what they have."""
        found = self._held.get(peer)
        if found is None:
            d = self._data[peer]
            arrays = (d.train_x, d.train_y, d.test_x, d.test_y)
            if d.train_x.dtype.kind in "iu" and self.options.model in MODELS.keys() - {"gru"}:
                raise ConfigError(
                    f"the samples are whole numbers, and model = {self.options.model!r} needs others; save them as "
                    "float32, images also as uint8"
                )
            found = tuple(canonical(array).to(self._device) for array in arrays)
            if self._keeps and not (isinstance(self._data, Slices) and self._data.on_disk):
                self._held[peer] = found
        return found

    def initialise(self, peer: int, row: Array) -> None:
        """Write w_k^0, freshly drawn parameters, and start the optimiser afresh.

        They differ from peer to peer if ``initial`` is own; by default all peers draw the same.
        """
        self.forget(peer)
        if self.options.initial == "own":
            self._home[peer] = self._drawn(row, peer)
            return
        if self._first is None:
            first = np.empty_like(row)
            self._first = first, self._drawn(first)
        row[:] = self._first[0]
        self._home[peer] = {name: value.copy() for name, value in self._first[1].items()}

    def forget(self, peer: int) -> None:
        """Drop what the peer keeps besides its row, so that it begins afresh."""
        self._optimizers.pop(peer, None)
        self._home.pop(peer, None)

    def _drawn(self, row: Array, *whose: int) -> State:
        """Draw fresh parameters into a row; return what of them stays at home."""
        with seeded(torch_seed(self.options.seed, "initialise", *whose), self._device):
            return self._build().write(row)

    def _build(self) -> FlatModel:
        o = self.options
        # drawn by the processor, so that every device begins with the same
        module = self._builder(self._shape, self._classes, o.width).to(self._device)
        return FlatModel(module, integers=o.integers, local=o.local)

    def load(self, peer: int, row: Array) -> None:
        """Make the model that of a peer: its row, and what it has at home."""
        if peer not in self._home:
            # a real peer that lost its own values while the others went on begins with fresh ones
            self.initialise(peer, np.empty_like(row))
        self.model.read(row, self._home[peer])

    def update(self, peer: int, round: int, row: Array) -> float:
        """Train for the local epochs or steps, in place on the peer's flat row; return the mean loss over all samples.

        The loss is that of the data alone, without the proximal term.
        """
        x, y, _, _ = self._samples(peer)
        total, seen, left = torch.zeros((), device=self._device), 0, self.options.batches(len(x))
        self.load(peer, row)
        self._be(training=True)
        optimizer = self._optimizer_of(peer, round)
        anchor = self.model.common.detach().clone() if self.options.proximal else None
        with seeded(torch_seed(self.options.seed, "update", peer, round), self._device):
            while left > 0:
                order = torch.randperm(len(x))[: left * self.options.batch_size].to(self._device)
                # gathered once: slices of it cost nothing
                total += self._epoch(optimizer, x[order], y[order], anchor)
                seen += len(order)
                left -= math.ceil(len(order) / self.options.batch_size)
        self._home[peer] = self.model.write(row)
        mean = float(total) / seen
        check_trained(peer, round, row, mean, f"lower learning_rate (now {self.options.learning_rate})")
        return mean

    def private_update(self, peer: int, round: int, row: Array) -> float | None:
        """Take the steps of `PrivateSteps`; return the mean loss over the batches, None if they were empty.

        With distributed noise the row becomes the step that this peer brings; with local noise, its parameters.
        """
        wish = self._private
        assert wish is not None  # noqa: S101 - the caller asks for it
        x, y, _, _ = self._samples(peer)
        self.load(peer, row)
        self._be(training=True)
        clipped, optimizer = ClippedGradients(self.model, self._losses), self._optimizer_of(peer, round)
        total, count = 0.0, 0
        with seeded(torch_seed(self.options.seed, "update", peer, round), self._device):
            for step in range(wish.steps):
                chosen = torch.from_numpy(wish.chance.batch(len(x), peer, round, step))
                total += float(clipped.add(x[chosen], y[chosen], wish.clip))
                count += int(chosen.sum())
                if wish.scale is not None:
                    row[:] = self.model.gradient.numpy()
                    row *= -wish.scale
                    break
                noisy = wish.chance.noisy(self.model.gradient.numpy(), peer, round, step)
                self.model.gradient.copy_(torch.from_numpy(noisy / wish.expected))
                optimizer.step()
            else:
                self._home[peer] = self.model.write(row)
        return total / count if count else None

    def _be(self, *, training: bool) -> None:
        """Prepare all modules for training or for scoring, if they are not: there are many, and it takes its time."""
        if self._training is not training:
            self.model.module.train(training)
            self._training = training

    def _losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample: of a sequence, the mean over its positions."""
        flat = functional.cross_entropy(outputs.reshape(-1, self._classes), labels.reshape(-1), reduction="none")
        return flat.view(len(labels), -1).mean(1)

    def _epoch(self, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, anchor: Tensor | None = None) -> Tensor:
        """Take one step per mini-batch and return the sum of the samples' losses.

        With an anchor, the model of the round before, the loss has FedProx's term: proximal / 2 times the squared
        distance from it.
        """
        total = torch.zeros((), device=self._device)
        size = self.options.batch_size
        for x_batch, y_batch in zip(torch.split(x, size), torch.split(y, size), strict=True):
            self.model.gradient.zero_()
            with self._autocast():
                outputs = self.model.module(x_batch).reshape(-1, self._classes)
                loss = functional.cross_entropy(outputs, y_batch.reshape(-1))
            loss.backward()  # type: ignore[no-untyped-call]
            if anchor is not None:
                self.model.common_gradient.add_(self.model.common.detach() - anchor, alpha=self.options.proximal)
            if self.options.gradient_norm is not None:
                nn.utils.clip_grad_norm_([self.model.trained], self.options.gradient_norm)
            optimizer.step()
            total += loss.detach() * len(x_batch)
        return total

    def _autocast(self) -> AbstractContextManager[object]:
        if self.options.precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)

    def seconds_per_batch(self, peer: int, *, batches: int) -> float:
        """Measure how long a step takes; spoils the model, so use a trainer that is thrown away."""
        x, y, _, _ = self._samples(peer)
        x, y = (array[: batches * self.options.batch_size] for array in (x, y))
        self._be(training=True)
        started = time.perf_counter()
        self._epoch(self._optimizer_of(peer, 1), x, y)
        return (time.perf_counter() - started) / math.ceil(len(x) / self.options.batch_size)

    def evaluate(self, peer: int, row: Array, data: tuple[Array, Array] | None = None) -> Score | None:
        """Score the parameters of a row, with what the peer has at home, on its test data, or on other ``data``."""
        if data is None:
            return self.evaluate_each(peer, row)[0]
        return self._score(peer, row, *(canonical(array).to(self._device) for array in data))[0]

    def evaluate_each(self, peer: int, row: Array) -> tuple[Score | None, Array]:
        """Score the same on the peer's own test data, if any, and tell of each prediction whether it was right."""
        if not self._counts(peer)[1]:
            return None, np.empty(0, dtype=bool)
        return self._score(peer, row, *self._samples(peer)[2:])

    def evaluate_common(self, peer: int, row: Array) -> Score | None:
        """Score the same on the common test set, if there is one."""
        return None if self._common is None else self._score(peer, row, *self._common)[0]

    def _score(self, peer: int, row: Array, x: Tensor, y: Tensor) -> tuple[Score, Array]:
        self.load(peer, row)
        self._be(training=False)
        module = self.model.module
        right: list[Array] = []
        loss = 0.0
        with torch.inference_mode():
            # equal parts: a small rest would be unlike the others for models that normalise by the batch
            parts = max(1, math.ceil(len(x) / EVALUATION_BATCH))
            for x_batch, y_batch in zip(x.tensor_split(parts), y.tensor_split(parts), strict=True):
                labels = y_batch.reshape(-1)
                outputs = module(x_batch).reshape(-1, self._classes)
                right.append(to_numpy(outputs.argmax(dim=1) == labels))
                loss += float(functional.cross_entropy(outputs, labels, reduction="sum"))
        each = np.concatenate(right)
        return Score(int(each.sum()), loss, len(each)), each

    def whole(self, peer: int, row: Array) -> State:
        """Return the peer's whole model by name, what stays at home included."""
        self.load(peer, row)
        return {name: np.array(to_numpy(value)) for name, value in self.model.module.state_dict().items()}

    def home(self, peer: int) -> State:
        """Return what of the peer's model stays at home, by name."""
        return self._home.get(peer, {})

    def state(self, peer: int) -> State:
        """Return a copy of what the peer keeps besides its row."""
        state = self._optimizers[peer].state.get(self.model.trained, {}) if peer in self._optimizers else {}
        kept = {name: np.array(to_numpy(value)) for name, value in state.items() if isinstance(value, Tensor)}
        return kept | {HOME + name: value for name, value in self._home.get(peer, {}).items()}

    def restore(self, peer: int, state: State) -> None:
        """Give the peer an optimiser with that state, and what it had at home."""
        self._home[peer] = {
            name.removeprefix(HOME): np.array(value) for name, value in state.items() if name.startswith(HOME)
        }
        optimizer = self._optimizers[peer] = make_optimizer(self.model.trained, self.options)
        kept = {name: torch.from_numpy(np.array(v)) for name, v in state.items() if not name.startswith(HOME)}
        if kept:
            like = self.model.trained
            optimizer.state[like] = {
                name: value.to(like.device, like.dtype) if value.shape == like.shape else value
                for name, value in kept.items()
            }

    def _optimizer_of(self, peer: int, round: int) -> torch.optim.Optimizer:
        """Return the peer's optimiser with the learning rate of a round."""
        optimizer = self._shared
        if not self._keeps:
            optimizer.state.clear()
        elif peer in self._optimizers:
            optimizer = self._optimizers[peer]
        else:
            optimizer = self._optimizers[peer] = make_optimizer(self.model.trained, self.options)
        for group in optimizer.param_groups:
            group["lr"] = self.options.rate(round)
        return optimizer


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, because sums in another order give other bits; restore the caller's setting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
