"""Seeds: different names for the peers, the same on every machine and in every version of Python."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt


def permutation(n: int, seed: int) -> npt.NDArray[np.int64]:
    """Return a permutation of 0..n-1: the order of SHA-256 digests, so no generator can change it."""
    keys = [hashlib.sha256(f"securedfl relabel {seed} {p}".encode()).digest() for p in range(n)]
    return np.array(sorted(range(n), key=keys.__getitem__), dtype=np.int64)
