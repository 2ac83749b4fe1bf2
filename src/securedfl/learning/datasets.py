"""Data sets as arrays, and the registry that finds one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.errors import InvalidInputError, MissingDependencyError, unknown

Array = npt.NDArray[Any]


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
        Optional: whom each sample is from, as whole numbers. The partition ``natural`` deals users to peers.
    held_out
        Optional: True for samples that the data set itself sets aside for testing. Without it, a tenth is drawn.
    """

    name: str
    x: Array
    y: Array
    classes: int
    users: Array | None = None
    held_out: Array | None = None

    def __post_init__(self) -> None:
        size = len(self.x)
        if not size:
            raise InvalidInputError(f"the data set {self.name!r} is empty; check the data folder")
        for name, array in (("labels", self.y), ("user ids", self.users), ("test marks", self.held_out)):
            if array is not None and len(array) != size:
                raise InvalidInputError(
                    f"the data set {self.name!r} has {size} samples but {len(array)} {name}"
                )
        if self.x.dtype.kind == "f" and not np.isfinite(self.x).all():
            sample = int(np.argwhere(~np.isfinite(self.x))[0][0])
            raise InvalidInputError(
                f"sample {sample} of the data set {self.name!r} holds NaN or infinity; remove or repair it"
            )
        if self.y.dtype.kind not in "iu":
            raise InvalidInputError(
                f"labels of the data set {self.name!r} must be whole numbers, not {self.y.dtype}"
            )
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


Load = Callable[[Path | None], Dataset]
"""Loads a data set, given the data folder if the user named one."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a data set comes from.

    Attributes
    ----------
    load
        Called with the data folder, or None.
    about
        One line for people.
    defaults
        Settings of `securedfl.federation.TrainConfig` that suit this data set; the user's own go before them.
    """

    load: Load
    about: str
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """Return the data set of that name; an unknown one is an error that names the nearest."""
    return source(name).load(data_dir)


def source(name: str) -> Source:
    """Return the registry's entry; an unknown name is an error that names the nearest known one."""
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    return SOURCES[name]


def _digits(data_dir: Path | None) -> Dataset:
    """Load the 1,797 handwritten digits of 8x8 pixels that scikit-learn carries; no data folder is needed."""
    del data_dir
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingDependencyError(
            "the data set 'digits' needs scikit-learn; install it with: pip install 'securedfl[learn]'"
        ) from None
    raw = load_digits()
    x = (raw.images / 16).astype(np.float32)[:, None]
    return Dataset(name="digits", x=x, y=raw.target.astype(np.int64), classes=10)


SOURCES: dict[str, Source] = {
    "digits": Source(
        load=_digits,
        about="1,797 handwritten digits, 8x8, from scikit-learn (no download)",
        defaults={"model": "cnn-small", "partition": "even", "optimizer": "rmsprop"},
    ),
}
"""All data sets by name; add an entry to add a data set."""
