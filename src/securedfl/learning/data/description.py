"""What a data set holds, in numbers: users, samples, split, classes, and where it was read from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from securedfl.learning.data.coding import Coding
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.datasets import Amount, Source
from securedfl.learning.data.dealing import deal, hold_back
from securedfl.parameters import Array

QUANTILES = (0, 0.25, 0.5, 0.75, 1)


@dataclass(frozen=True)
class Place:
    """Where a data set is read from, with its size, and where its decoded arrays are kept; None for a library's own."""

    address: str | None = None
    files: tuple[str, ...] = ()
    bytes: int | None = None
    cache: str | None = None
    cache_bytes: int | None = None

    @classmethod
    def of(cls, source: Source, data_dir: Path | None = None) -> Self:
        """Look where a source is read from; nothing is read."""
        if source.hub is None:
            size = sum(path.stat().st_size for path in source.files) if source.files else None
            address = str(source.files[0].parent) if source.files else None
            return cls(address=address, files=tuple(map(str, source.files)), bytes=size)
        origin = source.hub.origin(data_dir)
        files = [path for paths in (origin.files or {}).values() for path in paths]
        return cls(
            address=origin.address,
            files=tuple(map(str, files)),
            bytes=sum(path.stat().st_size for path in files) if files else None,
            cache=str(origin.cache),
            cache_bytes=origin.cache.stat().st_size if origin.cache.exists() else None,
        )


@dataclass(frozen=True)
class PerUser:
    """How samples are spread over users."""

    least: float
    lower_quartile: float
    median: float
    upper_quartile: float
    most: float


@dataclass(frozen=True, kw_only=True)
class Description:
    """All about a data set, for JSON and for people; ``labels`` count the samples of each class."""

    name: str
    about: str
    users: int
    samples: Mapping[str, int]
    samples_per_user: PerUser | None
    classes: int
    labels: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    alphabet: str | None
    names: tuple[str, ...] | None
    coding: Coding | None
    paper: Amount | None
    place: Place

    def to_json(self) -> str:
        """Return it as JSON; where it is read from stands among the rest."""
        plain = asdict(self)
        place = plain.pop("place")
        plain["coding"] = None if self.coding is None else json.loads(self.coding.to_json())
        return json.dumps({**plain, **place}, indent=2)


def describe(dataset: Dataset, source: Source, data_dir: Path | None = None) -> Description:
    """Count what a data set holds.

    Parameters
    ----------
    dataset
        As loaded.
    source
        Its entry in the registry.
    data_dir
        The data folder that it was loaded from, if the user named one.
    """
    own = source.defaults.get("dealing", "even") if dataset.users is not None else "even"
    # one peer gets all samples, so these are the sums over any number of peers
    pool, common = hold_back(dataset, 0.0)
    (dealt,) = deal(pool, 1, dealing=own)
    per_user = None if dataset.users is None else np.unique(dataset.users, return_counts=True)[1]
    return Description(
        name=dataset.name,
        about=source.about,
        users=dataset.user_count,
        samples={"all": len(dataset), "train": len(dealt.train), "test": len(dealt.test)}
        | ({} if common is None else {"common": len(common)}),
        samples_per_user=None if per_user is None else PerUser(*np.quantile(per_user, QUANTILES).tolist()),
        classes=dataset.classes,
        labels=tuple(np.bincount(dataset.y.reshape(-1), minlength=dataset.classes).tolist()),
        shape=tuple(dataset.shape),
        dtype=str(dataset.x.dtype),
        alphabet=dataset.alphabet,
        names=dataset.names,
        coding=dataset.coding,
        paper=source.paper,
        place=Place.of(source, data_dir),
    )


def excerpt(dataset: Dataset, users: int, samples: int) -> list[tuple[int | None, Array]]:
    """Return some users, spread from few samples to many, each with the indices of some samples of theirs.

    Where users are unknown, the rows are just samples. The same data set always gives the same excerpt.
    """
    random = np.random.default_rng(0)
    if dataset.users is None:
        order = random.permutation(len(dataset))[: users * samples]
        return [(None, order[at : at + samples]) for at in range(0, len(order), samples)]
    every, counts = np.unique(dataset.users, return_counts=True)
    spread = np.linspace(0, len(every) - 1, min(users, len(every))).round().astype(int)
    chosen = every[np.argsort(counts, kind="stable")][spread]
    result: list[tuple[int | None, Array]] = []
    for user in chosen.tolist():
        own = np.flatnonzero(dataset.users == user)
        result.append((user, np.sort(random.permutation(own)[:samples])))
    return result
