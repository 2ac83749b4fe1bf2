"""What a data set holds, in numbers: users, samples, split, classes, and where it was read from."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.datasets import Source
from securedfl.learning.data.dealing import deal
from securedfl.parameters import Array

QUANTILES = (0, 0.25, 0.5, 0.75, 1)


def describe(dataset: Dataset, source: Source, data_dir: Path | None = None) -> dict[str, Any]:
    """Return everything about a data set as plain values, for JSON and for people.

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
    (dealt,) = deal(dataset, 1, dealing=own)
    per_user = samples_per_user(dataset)
    labels = np.bincount(dataset.y.reshape(-1), minlength=dataset.classes)
    return {
        "name": dataset.name,
        "about": source.about,
        "users": dataset.user_count,
        "samples": {"all": len(dataset), "train": len(dealt.train), "test": len(dealt.test)},
        "samples_per_user": None
        if per_user is None
        else dict(
            zip(
                ("least", "lower_quartile", "median", "upper_quartile", "most"),
                np.quantile(per_user, QUANTILES).tolist(),
                strict=True,
            )
        ),
        "classes": dataset.classes,
        "labels": labels.tolist(),
        "shape": list(dataset.shape),
        "dtype": str(dataset.x.dtype),
        "alphabet": dataset.alphabet,
        "paper": None if source.paper is None else asdict(source.paper),
        **whereabouts(source, data_dir),
    }


def whereabouts(source: Source, data_dir: Path | None = None) -> dict[str, Any]:
    """Return where a data set is read from and where its decoded arrays are kept; nothing is read."""
    if source.hub is None:
        return {"address": None, "files": [], "bytes": None, "cache": None, "cache_bytes": None}
    origin = source.hub.origin(data_dir)
    files = [path for paths in (origin.files or {}).values() for path in paths]
    return {
        "address": origin.address,
        "files": list(map(str, files)),
        "bytes": sum(path.stat().st_size for path in files) if files else None,
        "cache": str(origin.cache),
        "cache_bytes": origin.cache.stat().st_size if origin.cache.exists() else None,
    }


def samples_per_user(dataset: Dataset) -> Array | None:
    """Return how many samples each user has, in the order of users; None if users are unknown."""
    return None if dataset.users is None else np.unique(dataset.users, return_counts=True)[1]


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
