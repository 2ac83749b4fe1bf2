"""Data sets by name: where each comes from, and which settings suit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from securedfl import plugins
from securedfl.errors import ConfigError, needing
from securedfl.learning.data import public
from securedfl.learning.data.dataset import Dataset, Mapped
from securedfl.learning.data.folder import USERS, is_path, look, read_folder
from securedfl.learning.data.hub import HubData, Tell
from securedfl.learning.data.tables.arrays import Columns, has_images

EVERY = Columns()
COMMON_PART = 0.1
"""What is held back of a folder that has no test files of its own, by default."""

Load = Callable[[Path | None, Tell], Dataset]
"""Loads a data set, given the data folder if the user named one, and whom to tell what takes its time."""


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
        Settings of a training that suit this data set; the user's own go before them.
    hub
        Where its files are, if they are not part of a library.
    files
        Of a folder of the user's own.
    paper
        How much of it the paper used.
    """

    load: Load
    about: str
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    hub: HubData | None = None
    files: tuple[Path, ...] = ()
    paper: Amount | None = None


@dataclass(frozen=True)
class Amount:
    """How much data: users, training samples and test samples."""

    users: int
    train: int
    test: int


def _digits(data_dir: Path | None, report: Tell) -> Dataset:
    """Load the 1,797 handwritten digits of 8x8 pixels that scikit-learn carries; no data folder is needed."""
    del data_dir, report
    with needing("the data set 'digits'"):
        from sklearn.datasets import load_digits
    raw = load_digits()
    x = (raw.images / 16).astype(np.float32)[:, None]
    return Dataset(name="digits", x=x, y=raw.target.astype(np.int64), classes=10)


def _public(load: Load, hub: HubData, about: str, paper: Amount, model: str, optimizer: str) -> Source:
    """Return the source of a data set on the hub that tells whom its samples are from."""
    defaults = {"model": model, "dealing": "natural", "optimizer": optimizer}
    return Source(load=load, about=f"{about} ({hub.address})", defaults=defaults, hub=hub, paper=paper)


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "digits": Source(
            load=_digits,
            about="1,797 handwritten digits, 8x8, from scikit-learn (no download)",
            defaults={"model": "cnn-small", "dealing": "even", "optimizer": "rmsprop"},
        ),
        "femnist": _public(
            public.femnist,
            public.FEMNIST,
            "NIST digits, 28x28, by writer",
            Amount(3_483, 351_333, 40_668),
            "cnn",
            "rmsprop",
        ),
        "shakespeare": _public(
            public.shakespeare,
            public.SHAKESPEARE,
            "next character in Shakespeare's plays, by speaking role",
            Amount(715, 37_986, 5_464),
            "gru",
            "adam",
        ),
        "cifar10": _public(
            public.cifar10,
            public.CIFAR10,
            "colour photographs of 10 kinds of things, 32x32, dealt to 1,000 clients",
            Amount(1_000, 50_000, 10_000),
            "resnet18",
            "rmsprop",
        ),
    }
)
"""Our own data sets. Other packages add theirs as entry points of `GROUP` that lead to a `Source`."""

GROUP, WHAT = "securedfl.datasets", "data set"


def names() -> list[str]:
    """Return the names of all data sets."""
    return plugins.names(GROUP, SOURCES, WHAT)


def source(name: str, columns: Columns = EVERY) -> Source:
    """Return where a data set comes from; an unknown name is an error that names the nearest known one.

    Parameters
    ----------
    name
        Of a known data set, or the path of a folder or table (see `is_path`).
    columns
        Of a folder: which columns mean what.
    """
    if is_path(name):
        return _folder(Path(name), columns)
    if columns != EVERY:
        raise ConfigError(
            f"label, user and features tell the columns of a folder, but {name!r} is no path of one: give a path as "
            f"the data set, such as ./{name}, or leave them away for a data set that is known by its name"
        )
    return plugins.find(GROUP, SOURCES, name, Source, WHAT)


def load(name: str, data_dir: Path | None = None, report: Tell | None = None, columns: Columns = EVERY) -> Dataset:
    """Return the data set of that name, or of a folder; an unknown one is an error that names the nearest."""
    return source(name, columns).load(data_dir, report or (lambda _text: None))


def _folder(path: Path, columns: Columns) -> Source:
    """Return a user's own folder as a source of data."""

    def load(data_dir: Path | None, report: Tell) -> Dataset:
        if data_dir is not None:
            raise ConfigError(f"{path} is a folder itself; leave --data-dir away")
        return read_folder(path, label=columns.label, user=columns.user, features=columns.features, report=report)

    defaults: dict[str, Any] = {}
    files: tuple[Path, ...] = ()
    if path.expanduser().exists():
        found = look(path)
        files = found.files
        if found.mapped:
            pictures, known = len(Mapped(found.files[0]).shape) == 4, any(file.name == USERS for file in files)
        else:
            pictures, known = found.images or has_images(found.files[0], columns), columns.user is not None
        defaults = {
            "model": "cnn-small" if pictures else "mlp",
            "optimizer": "rmsprop" if pictures else "adam",
            "dealing": "natural" if known else "even",
            "held_back": 0.0 if found.tests else COMMON_PART,
        }
    return Source(load=load, about="your own", defaults=defaults, files=files)
