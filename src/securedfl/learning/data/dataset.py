"""A data set as arrays, in memory or on disk, checked on entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from securedfl.errors import InvalidInputError
from securedfl.learning.data.coding import Coding
from securedfl.parameters import Array

BLOCK = 1 << 26
"""Bytes of a file that are read at a time when all of it is."""


UNREADABLE = (OSError, ValueError, EOFError, TypeError, SyntaxError, TokenError)
"""What numpy raises for files that hold no array."""


class Mapped:
    """Samples in a .npy file, mapped into memory: those that are asked for are read, and nothing is kept.

    Whole numbers of 8 bits come as float32 from 0 to 1, other whole numbers as int64, and all else as float32.

    Parameters
    ----------
    path
        The file; samples along axis 0.
    rows
        Which of its rows these are, in order; by default all.
    """

    def __init__(self, path: Path, rows: Array | None = None) -> None:
        self.path, self._rows = path, rows
        try:
            self._file: Array = np.lib.format.open_memmap(path, mode="r")
            self._state = self._now()
        except UNREADABLE as error:
            raise InvalidInputError(
                f"{path} cannot be mapped into memory ({error}); write it with numpy.save"
            ) from None
        fits = self._file.dtype.kind in "fi" or self._file.dtype in (np.uint8, np.uint16, np.uint32)
        if self._file.ndim < 2 or 0 in self._file.shape or not fits:
            raise InvalidInputError(
                f"{path} has shape {self._file.shape} and dtype {self._file.dtype}; samples are numbers that int64 or "
                "float32 can hold, one sample along axis 0 and its features along the others"
            )

    def _now(self) -> tuple[int, int]:
        about = self.path.stat()
        return about.st_size, about.st_mtime_ns

    def __len__(self) -> int:
        return len(self._file) if self._rows is None else len(self._rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return (len(self), *self._file.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of what is read."""
        whole = self._file.dtype.kind in "iu" and self._file.dtype != np.uint8
        return np.dtype(np.int64 if whole else np.float32)

    @property
    def nbytes(self) -> int:
        """How many bytes all of it would take in memory."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def __getitem__(self, chosen: Any) -> Array:
        # reading beyond the end of a mapped file ends the process without a word
        if not self.path.exists() or self._now() != self._state:
            raise InvalidInputError(f"{self.path} was changed while it is in use; leave it alone, and start again")
        found = self._file[chosen if self._rows is None else self._rows[chosen]]
        read: Array = np.array(found, dtype=self.dtype)
        return read / np.float32(255) if self._file.dtype == np.uint8 else read

    def only(self, chosen: Array) -> Mapped:
        """Return some of the samples, given by their indices or marks; nothing is read."""
        rows = np.arange(len(self._file)) if self._rows is None else self._rows
        return Mapped(self.path, rows[chosen])

    def blocks(self) -> Iterator[Array]:
        """Yield all samples in order, some at a time."""
        step = max(1, BLOCK // max(1, self.nbytes // max(1, len(self))))
        for start in range(0, len(self), step):
            yield self[start : start + step]

    def __reduce__(self) -> tuple[Any, ...]:
        return Mapped, (self.path, self._rows)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Samples and labels, checked on entry.

    Attributes
    ----------
    name
        Of the data set, for messages.
    x
        Samples along axis 0: float32 images in N, channel, height, width order, or int64 sequences. Where they are
        `Mapped`, they stay on disk, and whoever maps them checks them.
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
    coding
        Optional: what classes and features mean, of a folder that was read.
    """

    name: str
    x: Array | Mapped
    y: Array
    classes: int
    users: Array | None = None
    held_out: Array | None = None
    common: Array | None = None
    alphabet: str | None = None
    names: tuple[str, ...] | None = None
    coding: Coding | None = None

    def __post_init__(self) -> None:
        size = len(self.x)
        if not size:
            raise InvalidInputError(f"the data set {self.name!r} is empty; check the data folder")
        optional = ("user ids", self.users), ("test marks", self.held_out), ("common test marks", self.common)
        for name, array in (("labels", self.y), *optional):
            if array is not None and len(array) != size:
                raise InvalidInputError(f"the data set {self.name!r} has {size} samples but {len(array)} {name}")
        if isinstance(self.x, np.ndarray):
            check_finite(self.x, f"the data set {self.name!r}")
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
        x = self.x.only(chosen) if isinstance(self.x, Mapped) else self.x[chosen]
        others = {name: getattr(self, name) for name in ("y", "users", "held_out", "common")}
        return replace(self, x=x, **{name: array[chosen] for name, array in others.items() if array is not None})


def check_finite(x: Array, where: str, first: int = 0) -> None:
    """Refuse samples with NaN or infinity; the error names the first such one, where ``x`` begins with that number."""
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        sample = first + int(np.argwhere(~np.isfinite(x))[0][0])
        raise InvalidInputError(f"sample {sample} of {where} holds NaN or infinity; remove or repair it")


def numbered(values: Sequence[Any] | Array) -> tuple[Array, Array]:
    """Return the different values in their order, and the number that each one of all has among them, from 0."""
    found, number = np.unique(values, return_inverse=True)
    return found, number.reshape(-1).astype(np.int64)
