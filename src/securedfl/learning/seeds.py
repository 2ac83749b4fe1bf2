"""One seed for everything: independent streams of random numbers, each named by what it is for."""

from __future__ import annotations

import numpy as np


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """Return the generator for a purpose and keys (peer, round); equal arguments give equal numbers.

    Because nothing is drawn from a stream that somebody else draws from, the numbers do not depend on the order of
    work, on the number of processes, or on whether a run was interrupted.
    """
    return np.random.default_rng(_sequence(seed, purpose, keys))


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """Return a 63-bit seed for ``torch.manual_seed`` derived in the same way."""
    return int(_sequence(seed, purpose, keys).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(seed: int, purpose: str, keys: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence((seed, int.from_bytes(purpose.encode(), "big"), len(keys), *keys))
