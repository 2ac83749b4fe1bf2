"""Large designs, kept in the user's cache folder; a damaged file is noticed and built again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from securedfl import storage
from securedfl.designs.design import Design

FROM_PEERS = 2000
"""Smaller designs are built faster than they are read and checked."""

VERSION = 2
"""Part of the file name: raise it when a construction changes what it returns."""


def recall(n: int, s: int, seed: int) -> Design | None:
    """Return the stored design, or None if there is none that is intact."""
    stored = storage.recall(_path(n, s, seed))
    if stored is None:
        return None
    try:
        design = Design(stored["labels"], method=str(stored["method"]))
        if design.hash != str(stored["hash"]) or design.n != n:
            return None
        design.verify()
    except (KeyError, ValueError, TypeError):  # another file's content; `DesignError` is a `ValueError`
        return None
    return design


def remember(design: Design, s: int, seed: int) -> None:
    """Store a verified design."""
    arrays = {"labels": design.labels, "method": np.array(design.method), "hash": np.array(design.hash)}
    storage.remember(_path(design.n, s, seed), arrays)


def _path(n: int, s: int, seed: int) -> Path:
    return storage.cache_folder() / f"design-v{VERSION}-{n}-{s}-{seed}.npz"
