"""The registry that finds a data set by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from securedfl.errors import MissingDependencyError, unknown
from securedfl.learning.data import public
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.hub import Hub, Report

Load = Callable[[Path | None, Report], Dataset]
"""Loads a data set, given the data folder if the user named one, and whom to tell what takes its time."""


@dataclass(frozen=True)
class Amount:
    """How much data: users, training samples and test samples."""

    users: int
    train: int
    test: int


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a data set comes from.

    Attributes
    ----------
    load
        Called with the data folder, or None, and a listener.
    about
        One line for people.
    defaults
        Settings of `securedfl.federation.TrainConfig` that suit this data set; the user's own go before them.
    hub
        Where its files are, if they are not part of a library.
    paper
        How much of it the paper used.
    """

    load: Load
    about: str
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    hub: Hub | None = None
    paper: Amount | None = None


def load(name: str, data_dir: Path | None = None, report: Report | None = None) -> Dataset:
    """Return the data set of that name; an unknown one is an error that names the nearest."""
    return source(name).load(data_dir, report or (lambda _text: None))


def source(name: str) -> Source:
    """Return the registry's entry; an unknown name is an error that names the nearest known one."""
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    return SOURCES[name]


def _digits(data_dir: Path | None, report: Report) -> Dataset:
    """Load the 1,797 handwritten digits of 8x8 pixels that scikit-learn carries; no data folder is needed."""
    del data_dir, report
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
    "femnist": Source(
        load=public.femnist,
        about="NIST digits, 28x28, by writer (flwrlabs/femnist)",
        defaults={"model": "cnn", "partition": "natural", "optimizer": "rmsprop"},
        hub=public.FEMNIST,
        paper=Amount(3_483, 351_333, 40_668),
    ),
    "shakespeare": Source(
        load=public.shakespeare,
        about="next character in Shakespeare's plays, by speaking role (flwrlabs/shakespeare)",
        defaults={"model": "gru", "partition": "natural", "optimizer": "adam"},
        hub=public.SHAKESPEARE,
        paper=Amount(715, 37_986, 5_464),
    ),
    "cifar10": Source(
        load=public.cifar10,
        about="colour photographs of 10 kinds of things, 32x32, dealt to 1,000 clients (uoft-cs/cifar10)",
        defaults={"model": "resnet18", "partition": "natural", "optimizer": "rmsprop"},
        hub=public.CIFAR10,
        paper=Amount(1_000, 50_000, 10_000),
    ),
}
"""All data sets by name; add an entry to add a data set."""
