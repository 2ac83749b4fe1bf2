"""What a coalition learns from the partitions of a design, and which coalitions a design withstands.

Join two honest peers if, in one of the partitions that an average uses, they share a group with no colluder in it. The
coalition learns the sums over the connected components and nothing else (docs/mathematics/shares.md). A design
*withstands* c colluders with strength m if, whatever c peers collude and whatever m partitions a round uses, the honest
peers stay connected: then only the total is learned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from securedfl.designs.coalition_search import (
    EXPOSED,
    GLANCE,
    PARTIAL,
    Coalitions,
    Evaluate,
    Labels,
    Levels,
    candidates,
)
from securedfl.designs.design import Design

Bits = npt.NDArray[np.uint64]
"""One row per peer or group, one bit per coalition: all coalitions are followed at once."""

Groups = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Bits]
"""Of one partition: the k-th member of every group, the group of every peer, and who does not watch a group."""

MOST_COALITIONS, EFFORT = 300_000, 3_000
"""All coalitions are examined up to so many, otherwise about as many as the effort, chosen by a search."""

WORK = 10**9
"""Bits that may be touched for one answer, some tenths of a second; beyond, only some rounds are examined."""

_LEAST_WORK, _SEARCH_WORK = 10**5, 5 * 10**4
"""What a pass over a partition costs at least, and a coalition that a search proposes, both in bits."""


def learned(labels: Labels, coalitions: Coalitions) -> tuple[Levels, npt.NDArray[np.int64]]:
    """Return what many coalitions of one size learn from the partitions used.

    Parameters
    ----------
    labels
        The groups of the partitions used, one row each.
    coalitions
        One coalition per row.

    Returns
    -------
    levels, dimension
        Per coalition and peer `TOTAL`, `PARTIAL` (in a smaller sum) or `EXPOSED`; and per coalition how many sums it
        learns beyond the total.
    """
    (count, size), n = coalitions.shape, labels.shape[1]
    honest, partitions = _graph(labels, coalitions)
    isolated = honest.copy()
    for _, group, clean in partitions:
        isolated &= ~np.where(np.bincount(group)[:, None] > 1, clean, np.uint64(0))[group]
    alone = _unpacked(isolated, count)
    number = alone.sum(axis=0, dtype=np.int64)
    for component in _components(honest & ~isolated, partitions):
        number += _unpacked(np.bitwise_or.reduce(component, axis=0), count)
    levels = np.zeros((count, n), dtype=np.int8)
    split = number > 1 if n - size > 1 else number > 0
    if split.any():
        found = np.where(alone[:, split], EXPOSED, PARTIAL * _unpacked(honest, count)[:, split])
        levels[split] = found.T
    return levels, number - 1


def components(labels: Labels, coalition: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Return the sets of honest peers whose sums one coalition learns, by their smallest members."""
    members = np.array([sorted(set(coalition))], dtype=np.int64)
    found = _components(*_graph(labels, members))
    return tuple(tuple(np.flatnonzero(_unpacked(bits, 1)[:, 0]).tolist()) for bits in found)


def _graph(labels: Labels, coalitions: Coalitions) -> tuple[Bits, list[Groups]]:
    """Return in which coalitions each peer is honest, and the groups of every partition."""
    count, n = len(coalitions), labels.shape[1]
    colluding = np.zeros((n, -(-count // 64) * 64), dtype=bool)
    colluding[coalitions.T, np.arange(count)] = True
    # what fills the last word is a copy of the first coalition, so that it adds no work of its own
    colluding[:, count:] = colluding[:, :1]
    honest = ~np.packbits(colluding, axis=1).view(np.uint64)
    partitions = []
    for row in labels:
        group = row.astype(np.intp)
        sizes = np.bincount(group)
        places = np.arange(sizes.max())[:, None]
        first = np.cumsum(sizes) - sizes
        # a group that is smaller than others names its first member again
        members = np.argsort(group, kind="stable")[first + np.where(places < sizes, places, 0)]
        partitions.append((members, group, np.bitwise_and.reduce(honest[members], axis=0)))
    return honest, partitions


def _components(left: Bits, partitions: list[Groups]) -> Iterator[Bits]:
    """Yield one component after the other, of all coalitions at once, each from its smallest peer."""
    while left.any():
        start = left.copy()
        start[1:] &= ~np.bitwise_or.accumulate(left, axis=0)[:-1]
        component, _ = _spread(start, partitions)
        yield component
        left = left & ~component


def _spread(reached: Bits, partitions: list[Groups]) -> tuple[Bits, int]:
    """Return whom the given peers reach through groups that nobody watches, and after how many passes."""
    passes = 0
    while True:
        before = reached.copy()
        for members, group, clean in partitions:
            reached |= (np.bitwise_or.reduce(reached[members], axis=0) & clean)[group]
        passes += 1
        if np.array_equal(reached, before):
            return reached, passes


def _unpacked(bits: Bits, count: int) -> npt.NDArray[np.uint8]:
    return np.unpackbits(bits.view(np.uint8), axis=-1, count=count)


def evaluate(labels: Labels, iterations: int = 1) -> Evaluate:
    """Return the function that tells what coalitions learn; before the last iteration it is only the total."""

    def judge(coalitions: Coalitions) -> tuple[Levels, npt.NDArray[np.int64]]:
        levels, dimension = learned(labels, coalitions)
        told = np.arange(iterations) == iterations - 1
        # the total of one peer is that peer
        told |= labels.shape[1] - coalitions.shape[1] == 1
        return levels[:, None] * told[:, None], dimension[:, None] * told

    return judge


Extent = Mapping[int, tuple[int, int]]
"""Which of the different rounds are examined, and how far, as `candidates` takes it: all coalitions up to a limit,
otherwise about so many, found by a search. No limit and no effort is a `glance`."""


@lru_cache(maxsize=64)
def extent(design: Design, strength: int, size: int) -> Extent:
    """Return how far coalitions are examined: whoever asks about the same design gets the same answer."""
    nobody = np.empty((1, 0), dtype=np.int64)
    honest, partitions = _graph(design.used(0, strength), nobody)
    start = np.zeros_like(honest)
    start[0] = honest[0]
    _, passes = _spread(start, partitions)
    number, every = math.comb(design.n, size), design.rotation(strength)
    affordable = WORK // (passes * strength * design.n)
    limit = number if number <= min(MOST_COALITIONS, affordable) else 0
    effort = min(EFFORT, affordable)

    def rounds(coalitions: int, searched: int = 0) -> frozenset[int]:
        each = passes * strength * max(_LEAST_WORK, design.n * coalitions) + searched * _SEARCH_WORK
        return first_and_spread(every, max(1, WORK // each))

    thorough = rounds(limit) if limit else rounds(effort, effort)
    return dict.fromkeys(rounds(GLANCE), (0, 0)) | dict.fromkeys(thorough, (limit, effort))


def first_and_spread(every: int, most: int) -> frozenset[int]:
    """Return all rounds, or so many: half of them the first, which every run has, the others spread evenly."""
    if every <= most:
        return frozenset(range(every))
    first = -(-most // 2)
    rest = most - first
    return frozenset(range(first)) | {(k + 1) * every // (rest + 1) for k in range(rest)}


@lru_cache(maxsize=64)
def withstands(design: Design, strength: int, collusion: int) -> bool:
    """Tell whether no coalition of that size learns more than the total, in any round, as far as `extent` goes."""
    if not 0 < collusion < design.n - 1:
        # nobody is curious, or the total gives away the one peer left, whatever the protocol
        return True
    # else one colluder in each of a peer's groups
    return strength > collusion and not _found(design, strength, collusion, PARTIAL)


def exposes(design: Design, strength: int, collusion: int) -> bool:
    """Tell whether a coalition of that size learns the parameters of a peer in some round, as far as `extent` goes."""
    return _found(design, strength, collusion, EXPOSED)


def _found(design: Design, strength: int, collusion: int, level: int) -> bool:
    """Tell whether the search finds a coalition that learns so much about somebody."""

    def reached(round: int, limit: int, effort: int) -> bool:
        labels = design.used(round, strength)
        judge = evaluate(labels)
        tried = candidates(design.n, collusion, judge, limit=limit, effort=effort, labels=labels)
        return any((judge(coalitions)[0] >= level).any() for coalitions in tried)

    rounds = sorted(extent(design, strength, collusion).items())
    # A glance refutes nearly everything that can be refuted. Weak partitions come last in designs made of pieces.
    if any(reached(round, 0, 0) for round, _ in reversed(rounds)):
        return True
    return any(reached(round, *how) for round, how in rounds if any(how))


def exhaustive(design: Design, strength: int, collusion: int) -> bool:
    """Tell whether `withstands` tries every coalition in every round."""
    found = extent(design, strength, collusion)
    return len(found) == design.rotation(strength) and all(limit > 0 for limit, _ in found.values())
