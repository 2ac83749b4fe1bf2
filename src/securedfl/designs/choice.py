"""Automatic choice: the group size and number of partitions that withstand a coalition at the least bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
import numpy.typing as npt

from securedfl.designs.design import Design
from securedfl.designs.portfolio import best, estimate
from securedfl.designs.sizes import check
from securedfl.errors import DesignError

EFFORT = 5 * 10**7
"""Element operations up to which every coalition is tried; beyond, a sample of those around a group."""

SAMPLED_WINDOWS, SAMPLED_PEERS = 8, 64

MESSAGE_BYTES = 160
"""A seed, and what a transport adds to any message."""


@dataclass(frozen=True)
class Choice:
    """What `best_for` recommends for the share protocol.

    ``strength`` is the number of partitions that a round uses; ``vectors`` the bytes that a peer sends, as a
    multiple of its parameter vector; ``exhaustive`` tells whether every coalition was tried.
    """

    design: Design
    strength: int
    group_size: int
    vectors: float
    exhaustive: bool
    reason: str


def best_for(
    n: int, collusion: int, *, group_size: int | None = None, seed: int = 0, vector_bytes: int = 4_000_000
) -> Choice:
    """Choose a design and strength m such that ``collusion`` peers learn nothing but the total from shares.

    The criterion is exact: the honest peers stay connected when peers are joined that share a group without a
    colluder, over the m partitions of any round. It needs m > collusion, as one colluder in each of a peer's
    groups isolates it. All coalitions are tried if they are few enough, otherwise a sample of those that
    surround a peer or a group; the certificate of a run says what it tried itself.

    Bytes that a peer sends, in vectors, with groups of s: one share explicitly, (s-1)/s, the others as seeds;
    what it then owns, a slice for each partition, to be reduced, min(1, m/s) (n-1)/n; its segment of the result
    to everybody, (n-1)/n; and `MESSAGE_BYTES` for each of the m (s-1) messages to its groups. So groups larger
    than the strength save bytes, as far as enough partitions exist.

    Parameters
    ----------
    n, collusion
        Peers, and how many of them may collude.
    group_size
        Fix the group size instead of choosing it.
    seed
        As for `best`.
    vector_bytes
        Size of the parameter vector, which decides whether messages or bytes weigh more.
    """
    check(n, group_size if group_size is not None else 2)
    if isinstance(collusion, bool) or not isinstance(collusion, int) or collusion < 0:
        raise DesignError(f"the number of colluders must be a whole number from 0, not {collusion!r}")
    if collusion > n - 2:
        raise DesignError(
            f"{collusion} of {n} peers cannot be withstood: the total gives away the one that is left; "
            f"ask for at most {n - 2}"
        )
    sizes = [group_size] if group_size is not None else range(2, max(2, math.isqrt(n)) + 1)
    found = _cheapest(n, collusion, list(sizes), seed, vector_bytes)
    if found is not None:
        return found
    for fewer in range(collusion - 1, -1, -1):
        if _cheapest(n, fewer, list(sizes), seed, vector_bytes):
            within = f" in groups of {group_size}" if group_size is not None else ""
            raise DesignError(
                f"no known design of {n} peers{within} withstands {collusion} colluders; {fewer} can be withstood"
            )
    raise DesignError(f"no known design of {n} peers withstands {collusion} colluders")


def _cheapest(n: int, collusion: int, sizes: list[int], seed: int, vector_bytes: int) -> Choice | None:
    """Try group sizes, the cheapest first, and stop when no other can be cheaper than what works."""
    least = collusion + 1
    found: Choice | None = None
    for s in sorted(sizes, key=lambda size: (_vectors(n, size, least, vector_bytes), size)):
        if found and _vectors(n, s, least, vector_bytes) >= found.vectors:
            break
        # Search may find a little more than the constructions promise, never much.
        if estimate(n, s) < 0.5 * least:
            continue
        design = best(n, s, seed)
        for strength in range(least, design.gap + 1):
            cost = _vectors(n, s, strength, vector_bytes)
            if found and cost >= found.vectors:
                break
            if withstands(design, strength, collusion):
                every = _exhaustive(design, strength, collusion)
                tried = (
                    "every coalition was tried"
                    if every
                    else "a sample of the coalitions around a group was tried"
                )
                reason = (
                    f"groups of {s} with strength {strength} withstand {collusion} colluder{'s' * (collusion != 1)} "
                    f"({tried}) at {cost:.2f} vectors per peer, the least of the group sizes that do"
                )
                found = Choice(design, strength, s, cost, every, reason)
                break
    return found


def _vectors(n: int, s: int, strength: int, vector_bytes: int) -> float:
    others = (n - 1) / n
    share = (s - 1) / s + min(1.0, strength / s) * others + others
    return share + strength * (s - 1) * MESSAGE_BYTES / vector_bytes


def withstands(design: Design, strength: int, collusion: int) -> bool:
    """Tell whether no coalition of that size learns more than the total, whatever partitions a round uses."""
    if collusion == 0:
        return True
    if strength <= collusion or strength > design.gap:
        return False
    step = math.gcd(strength, design.gap)
    windows = range(0, design.gap, step)
    if not _exhaustive(design, strength, collusion):
        windows = windows[:: -(-len(windows) // SAMPLED_WINDOWS)]
    for first in windows:
        rows = design.labels[(first + np.arange(strength)) % design.gap].astype(np.int64)
        coalitions = _coalitions(design, rows, strength, collusion)
        while batch := list(islice(coalitions, max(1, (1 << 20) // design.n))):
            if not _connected(rows, np.array(batch, dtype=np.intp)).all():
                return False
    return True


def _exhaustive(design: Design, strength: int, collusion: int) -> bool:
    windows = design.gap // math.gcd(strength, design.gap)
    return math.comb(design.n, collusion) * windows * design.n * strength * 5 <= EFFORT


def _coalitions(
    design: Design, rows: npt.NDArray[np.int64], strength: int, collusion: int
) -> Iterator[tuple[int, ...]]:
    """Yield all coalitions, or a sample of those that take one peer from each group around a peer or a group."""
    n = design.n
    if _exhaustive(design, strength, collusion):
        yield from combinations(range(n), collusion)
        return
    for peer in range(0, n, -(-n // SAMPLED_PEERS)):
        group = np.flatnonzero(rows[peer % strength] == rows[peer % strength, peer]).tolist()
        for inside in ([peer], group):
            around: list[int] = []
            for row in rows:
                for member in inside:
                    outside = [p for p in np.flatnonzero(row == row[member]).tolist() if p not in inside]
                    if outside and not set(outside) & set(around):
                        around.append(outside[0])
            spare = (p for p in range(n) if p not in around and p not in inside)
            coalition = (around + list(islice(spare, collusion)))[:collusion]
            if len(coalition) == collusion:
                yield tuple(coalition)


def _connected(rows: npt.NDArray[np.int64], coalitions: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Tell for each coalition whether the honest peers form one component: spread the smallest name."""
    count, n = len(coalitions), rows.shape[1]
    colluding = np.zeros((count, n), dtype=bool)
    np.put_along_axis(colluding, coalitions, True, axis=1)
    name = np.where(colluding, n, np.arange(n))
    orders = [np.argsort(row, kind="stable") for row in rows]
    starts = [
        np.searchsorted(row[order], np.arange(row.max() + 1)) for row, order in zip(rows, orders, strict=True)
    ]
    clean = [
        ~np.logical_or.reduceat(colluding[:, order], start, axis=1)
        for order, start in zip(orders, starts, strict=True)
    ]
    while True:
        before = name
        for row, order, start, free in zip(rows, orders, starts, clean, strict=True):
            least = np.minimum.reduceat(name[:, order], start, axis=1)
            name = np.where(free[:, row], least[:, row], name)
        if np.array_equal(before, name):
            break
    lowest = name.min(axis=1, keepdims=True)
    return np.asarray(((name == lowest) | colluding).all(axis=1))
