"""A data set as arrays, checked on entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from securedfl.errors import InvalidInputError
from securedfl.parameters import Array


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Samples and labels, checked on entry.

    Attributes
    ----------
    name
        Of the data set, for messages.
    x
        Samples along axis 0: float32 images in N, channel, height, width order, or int64 sequences.
    y
        int64 labels from 0 to ``classes - 1``: one per sample, or one per position of a sequence.
    classes
        The number of different labels.
    users
        Optional: whom each sample is from, as whole numbers. The dealing ``natural`` gives whole users to peers.
    held_out
        Optional: True for samples that the data set itself sets aside for testing. Without it, a tenth is drawn.
    common
        Optional: True for samples that no peer gets, to score all peers on the same test data.
    alphabet
        Of text: which character each number stands for.
    names
        Optional: what each class is called.
    """

    name: str
    x: Array
    y: Array
    classes: int
    users: Array | None = None
    held_out: Array | None = None
    common: Array | None = None
    alphabet: str | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        size = len(self.x)
        if not size:
            raise InvalidInputError(f"the data set {self.name!r} is empty; check the data folder")
        optional = ("user ids", self.users), ("test marks", self.held_out), ("common test marks", self.common)
        for name, array in (("labels", self.y), *optional):
            if array is not None and len(array) != size:
                raise InvalidInputError(f"the data set {self.name!r} has {size} samples but {len(array)} {name}")
        if self.x.dtype.kind == "f" and not np.isfinite(self.x).all():
            sample = int(np.argwhere(~np.isfinite(self.x))[0][0])
            raise InvalidInputError(
                f"sample {sample} of the data set {self.name!r} holds NaN or infinity; remove or repair it"
            )
        if self.y.dtype.kind not in "iu":
            raise InvalidInputError(f"labels of the data set {self.name!r} must be whole numbers, not {self.y.dtype}")
        if self.y.min() < 0 or self.y.max() >= self.classes:
            raise InvalidInputError(
                f"labels of the data set {self.name!r} go from {self.y.min()} to {self.y.max()}, "
                f"but its {self.classes} classes are numbered 0 to {self.classes - 1}"
            )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    @cached_property
    def user_count(self) -> int:
        """How many users there are; 0 if unknown."""
        return 0 if self.users is None else len(np.unique(self.users))

    def fraction(self, part: float, random: np.random.Generator) -> Dataset:
        """Return a random part of the users, or of the samples where users are unknown; at least one."""
        if part == 1:
            return self
        groups = np.arange(len(self)) if self.users is None else self.users
        every = np.unique(groups)
        kept = random.permutation(every)[: max(1, round(part * len(every)))]
        return self.only(np.flatnonzero(np.isin(groups, kept)))

    def without_common(self) -> Dataset:
        """Return the same without marks of a common test set."""
        return replace(self, common=None)

    def only(self, chosen: Array) -> Dataset:
        """Return some of the samples, given by their indices or marks."""
        columns = ("x", "y", "users", "held_out", "common")
        found = {name: getattr(self, name) for name in columns}
        return replace(self, **{name: array[chosen] for name, array in found.items() if array is not None})


def numbered(values: Sequence[Any] | Array) -> tuple[Array, Array]:
    """Return the different values in their order, and the number that each one of all has among them, from 0."""
    found, number = np.unique(values, return_inverse=True)
    return found, number.reshape(-1).astype(np.int64)
