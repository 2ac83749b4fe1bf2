"""Local training: Algorithm 3's Update, and the score of a model on a peer's own test data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from securedfl.arrays import to_numpy
from securedfl.errors import ConfigError, InvalidInputError, unknown
from securedfl.learning.models.flat import FlatModel, canonical
from securedfl.learning.models.registry import build
from securedfl.learning.seeds import torch_seed
from securedfl.learning.training.clipping import ClippedGradients
from securedfl.learning.training.common_optimizer import buffers_of
from securedfl.learning.training.private import PrivateSteps
from securedfl.learning.training.task import PeerData, Score, State, TrainingOptions
from securedfl.parameters import Array, Schema

HOME = "home."
"""Before the names of what stays at home, in a state."""

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
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
        self._shape, self._classes = shape, classes
        # only the structure counts; without a seed of its own the caller's generator would move
        with _seeded(options.seed, self._device):
            self.model = self._build()
        self._data = {
            peer: tuple(canonical(a).to(self._device) for a in (d.train_x, d.train_y, d.test_x, d.test_y))
            for peer, d in data.items()
        }
        self._common = None if common is None else tuple(canonical(a).to(self._device) for a in common)
        self._loss = nn.CrossEntropyLoss()
        self._total_loss = nn.CrossEntropyLoss(reduction="sum")
        self._optimizers = {peer: self._optimizer() for peer in self._data}
        self._home: dict[int, State] = {}

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
        return len(self._data[peer][0])

    def initialise(self, peer: int, row: Array) -> None:
        """Write w_k^0, freshly drawn parameters, and start the optimiser afresh.

        They differ from peer to peer if ``initial`` is own; by default all peers draw the same.
        """
        self._optimizers[peer] = self._optimizer()
        whose = (peer,) if self.options.initial == "own" else ()
        with _seeded(torch_seed(self.options.seed, "initialise", *whose), self._device):
            self._home[peer] = self._build().write(row)

    def _build(self) -> FlatModel:
        o = self.options
        # drawn by the processor, so that every device begins with the same
        module = build(o.model, self._shape, self._classes, o.width).to(self._device)
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
        x, y, _, _ = self._data[peer]
        total, seen, left = torch.zeros((), device=self._device), 0, self.options.batches(len(x))
        self.load(peer, row)
        self.model.module.train()
        optimizer = self._optimizers[peer]
        for group in optimizer.param_groups:
            group["lr"] = self.options.rate(round)
        anchor = self.model.common.detach().clone() if self.options.proximal else None
        with _seeded(torch_seed(self.options.seed, "update", peer, round), self._device):
            while left > 0:
                order = torch.randperm(len(x))[: left * self.options.batch_size].to(self._device)
                # gathered once: slices of it cost nothing
                total += self._epoch(optimizer, x[order], y[order], anchor)
                seen += len(order)
                left -= math.ceil(len(order) / self.options.batch_size)
        self._home[peer] = self.model.write(row)
        mean = float(total) / seen
        if not (np.isfinite(mean) and np.isfinite(row.sum(dtype=np.float64))):
            raise InvalidInputError(
                f"training of peer {peer} diverged in round {round}: its loss or parameters are not finite; "
                f"lower learning_rate (now {self.options.learning_rate})"
            )
        return mean

    def private_update(self, peer: int, round: int, row: Array) -> float | None:
        """Take the steps of `PrivateSteps`; return the mean loss over the batches, None if they were empty.

        With distributed noise the row becomes the step that this peer brings; with local noise, its parameters.
        """
        wish = self._private
        assert wish is not None  # noqa: S101 - the caller asks for it
        x, y, _, _ = self._data[peer]
        self.load(peer, row)
        self.model.module.train()
        clipped, optimizer = ClippedGradients(self.model, self._losses), self._optimizers[peer]
        for group in optimizer.param_groups:
            group["lr"] = self.options.rate(round)
        total, count = 0.0, 0
        with _seeded(torch_seed(self.options.seed, "update", peer, round), self._device):
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

    def _losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample: of a sequence, the mean over its positions."""
        flat = nn.functional.cross_entropy(scores.reshape(-1, self._classes), labels.reshape(-1), reduction="none")
        return flat.view(len(labels), -1).mean(1)

    def _epoch(self, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, anchor: Tensor | None = None) -> Tensor:
        """Take one step per mini-batch and return the sum of the samples' losses.

        With an anchor, the model of the round before, the loss has FedProx's term: proximal / 2 times the squared
        distance from it.
        """
        total = torch.zeros((), device=self._device)
        for x_batch, y_batch in _batches(x, y, self.options.batch_size):
            self.model.gradient.zero_()
            with self._autocast():
                scores = self.model.module(x_batch).reshape(-1, self._classes)
                loss = self._loss(scores, y_batch.reshape(-1))
            loss.backward()
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
        x, y, _, _ = self._data[peer]
        x, y = (array[: batches * self.options.batch_size] for array in (x, y))
        self.model.module.train()
        started = time.perf_counter()
        self._epoch(self._optimizers[peer], x, y)
        return (time.perf_counter() - started) / math.ceil(len(x) / self.options.batch_size)

    def evaluate(self, peer: int, row: Array, data: tuple[Array, Array] | None = None) -> Score:
        """Score the parameters of a row, with what the peer has at home, on its test data, or on other ``data``."""
        _, _, x, y = self._data[peer]
        if data is not None:
            x, y = (canonical(array).to(self._device) for array in data)
        self.load(peer, row)
        return self._score(x, y)[0]

    def evaluate_each(self, peer: int, row: Array) -> tuple[Score, Array]:
        """Score the same on the peer's own test data, and tell of each prediction whether it was right."""
        self.load(peer, row)
        return self._score(*self._data[peer][2:])

    def evaluate_common(self, peer: int, row: Array) -> Score | None:
        """Score the same on the common test set, if there is one."""
        if self._common is None:
            return None
        self.load(peer, row)
        return self._score(*self._common)[0]

    def _score(self, x: Tensor, y: Tensor) -> tuple[Score, Array]:
        module = self.model.module
        module.eval()
        right: list[Array] = []
        loss = 0.0
        with torch.inference_mode():
            # equal parts: a small rest would be unlike the others for models that normalise by the batch
            parts = max(1, math.ceil(len(x) / EVALUATION_BATCH))
            for x_batch, y_batch in zip(x.tensor_split(parts), y.tensor_split(parts), strict=True):
                labels = y_batch.reshape(-1)
                scores = module(x_batch).reshape(-1, self._classes)
                right.append(to_numpy(scores.argmax(dim=1) == labels))
                loss += float(self._total_loss(scores, labels))
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
                name: value.to(like.device, like.dtype) if value.shape == like.shape else value
                for name, value in kept.items()
            }

    def _optimizer(self) -> torch.optim.Optimizer:
        o = self.options
        if o.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", o.optimizer, OPTIMIZERS)
        momentum = {} if o.optimizer in ("adam", "adamw") else {"momentum": o.momentum}
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
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators (batches, dropout, initial parameters) and give the caller's state back."""
    before, far = torch.get_rng_state(), None
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":  # dropout on an accelerator draws there
        generator = getattr(torch, device.type)
        far = generator.get_rng_state()
        generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
        if far is not None:
            generator.set_rng_state(far)


def find_device(name: str) -> torch.device:
    """Return the device of that name; one that this machine does not have is an error that says what it has."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind, _, number = name.partition(":")
    count = torch.cuda.device_count() if there["cuda"] and kind == "cuda" else 1
    if not there.get(kind) or int(number or 0) >= count:
        known = ", ".join(kind for kind, found in there.items() if found)
        raise ConfigError(f"device = {name!r}: PyTorch finds none such on this machine; it finds {known}")
    return torch.device(name)
