"""All coalitions of a size, or the worst that a search finds: who can learn about whom."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
import numpy.typing as npt

from securedfl.errors import PrivacyError

Coalitions = npt.NDArray[np.int64]
Levels = npt.NDArray[np.int8]
Evaluate = Callable[[Coalitions], tuple[Levels, npt.NDArray[np.int64]]]
"""For each coalition and iteration: per peer 0 (only the total), 1 (some function of it and others) or 2 (exposed);
and the dimension. Shapes (coalitions, iterations, n) and (coalitions, iterations)."""

TOTAL, PARTIAL, EXPOSED = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Survey:
    """What the coalitions of one size can learn.

    Attributes
    ----------
    exhaustive
        Whether every coalition was examined; if not, the worst may be worse than what was found.
    examined, breaking
        How many coalitions were examined, and how many of them expose somebody.
    worst
        The coalition that exposes most, then that learns most functions.
    exposed_by_iteration, dimension_by_iteration
        The most that any examined coalition has after each iteration.
    levels
        ``levels[i, u]``: the most that coalitions with member i learn about peer u.
    """

    exhaustive: bool
    examined: int
    breaking: int
    worst: tuple[int, ...]
    exposed_by_iteration: tuple[int, ...]
    dimension_by_iteration: tuple[int, ...]
    levels: Levels


def survey(
    n: int,
    size: int,
    evaluate: Evaluate,
    *,
    limit: int,
    effort: int,
    labels: npt.NDArray[np.integer] | None = None,
    seed: int = 0,
) -> Survey:
    """Examine all coalitions of a size if there are at most ``limit``, else search for the worst.

    Parameters
    ----------
    n, size
        Peers, and members of a coalition.
    evaluate
        What coalitions learn.
    limit
        Up to how many coalitions all are examined.
    effort
        Otherwise, about how many are: a third each grown member by member, aimed at one peer's groups, and random.
    labels
        The groups that meet, one row per partition in use; without them nothing is aimed at.
    seed
        Of the search.
    """
    check_size(n, size)
    tally = _Tally(n, evaluate)
    exhaustive = math.comb(n, size) <= limit
    if exhaustive:
        for batch in _batches(combinations(range(n), size), n):
            tally.add(batch)
    else:
        source = random.Random(seed)
        tally.add(_grown(n, size, evaluate, effort // 3, source))
        if labels is not None:
            tally.add(_aimed(n, size, labels, effort // 3, source))
        tally.add(np.array([sorted(source.sample(range(n), size)) for _ in range(max(effort // 3, 1))]))
    return tally.result(exhaustive=exhaustive)


def check_size(n: int, size: int) -> None:
    """Raise `PrivacyError` for a size that no coalition can have."""
    if not 1 <= size < n:
        raise PrivacyError(f"a coalition of {size} among {n} peers makes no sense; choose 1 to {n - 1}")


class _Tally:
    """Keeps the worst of what was examined."""

    def __init__(self, n: int, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._examined = self._breaking = 0
        self._worst: tuple[tuple[int, int], tuple[int, ...]] | None = None
        self._exposed: npt.NDArray[np.int64] | None = None
        self._dimension: npt.NDArray[np.int64] | None = None
        self._levels = np.zeros((n, n), dtype=np.int8)

    def add(self, coalitions: Coalitions) -> None:
        step = batch_size(self._levels.shape[0])
        for at in range(0, len(coalitions), step):
            self._add(coalitions[at : at + step])

    def _add(self, coalitions: Coalitions) -> None:
        levels, dimension = self._evaluate(coalitions)
        exposed = (levels == EXPOSED).sum(axis=2)
        self._examined += len(coalitions)
        self._breaking += int((exposed[:, -1] > 0).sum())
        best = np.lexsort((-np.arange(len(coalitions)), dimension[:, -1], exposed[:, -1]))[-1]
        score = int(exposed[best, -1]), int(dimension[best, -1])
        if self._worst is None or score > self._worst[0]:
            self._worst = score, tuple(int(member) for member in coalitions[best])
        self._exposed = _maximum(self._exposed, exposed.max(axis=0))
        self._dimension = _maximum(self._dimension, dimension.max(axis=0))
        for member in coalitions.T:
            np.maximum.at(self._levels, member, levels[:, -1])

    def result(self, *, exhaustive: bool) -> Survey:
        if self._worst is None or self._exposed is None or self._dimension is None:
            raise PrivacyError("no coalition was examined")
        return Survey(
            exhaustive=exhaustive,
            examined=self._examined,
            breaking=self._breaking,
            worst=self._worst[1],
            exposed_by_iteration=tuple(self._exposed.tolist()),
            dimension_by_iteration=tuple(self._dimension.tolist()),
            levels=self._levels,
        )


def merge(surveys: list[Survey]) -> Survey:
    """Return the worst of several surveys of the same peers, for instance of several rounds."""
    worst = max(surveys, key=lambda s: (s.exposed_by_iteration[-1], s.dimension_by_iteration[-1]))
    return Survey(
        exhaustive=all(s.exhaustive for s in surveys),
        examined=max(s.examined for s in surveys),
        breaking=max(s.breaking for s in surveys),
        worst=worst.worst,
        exposed_by_iteration=_most([s.exposed_by_iteration for s in surveys]),
        dimension_by_iteration=_most([s.dimension_by_iteration for s in surveys]),
        levels=np.maximum.reduce([s.levels for s in surveys]),
    )


def batch_size(n: int) -> int:
    """Return how many coalitions to evaluate at a time, so that a batch stays within some megabytes."""
    return max(1, 300_000 // n)


def _batches(coalitions: Iterator[tuple[int, ...]], n: int) -> Iterator[Coalitions]:
    while batch := list(islice(coalitions, batch_size(n))):
        yield np.array(batch)


def _grown(n: int, size: int, evaluate: Evaluate, effort: int, source: random.Random) -> Coalitions:
    """Grow coalitions from one member, each time by the one who adds most (ties at random)."""
    grown = []
    starts = source.sample(range(n), max(1, min(n, effort // (n * size))))
    for start in starts:
        members = [start]
        while len(members) < size:
            others = [p for p in range(n) if p not in members]
            source.shuffle(others)
            levels, dimension = evaluate(np.array([[*members, p] for p in others]))
            exposed = (levels[:, -1] == EXPOSED).sum(axis=1)
            members.append(others[int(np.lexsort((dimension[:, -1], exposed))[-1])])
        grown.append(sorted(members))
    return np.array(grown)


def _aimed(
    n: int, size: int, labels: npt.NDArray[np.integer], effort: int, source: random.Random
) -> Coalitions:
    """Aim at one peer: members from as many of its groups as possible, the rest from its neighbours' groups."""
    aimed = []
    for k in range(max(effort, 1)):
        target = k % n
        members: list[int] = []
        frontier = [target]
        while len(members) < size and frontier:
            peer = frontier.pop(0)
            for row in source.sample(list(labels), len(labels)):
                group = [int(p) for p in np.flatnonzero(row == row[peer]) if p != target]
                if len(members) < size and group and not set(group) & set(members):
                    members.append(source.choice(group))
                    frontier.extend(p for p in group if p not in members)
        rest = [p for p in range(n) if p != target and p not in members]
        members += source.sample(rest, min(size - len(members), len(rest)))
        aimed.append(sorted(members))
    return np.array(aimed)


def _maximum(a: npt.NDArray[np.int64] | None, b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return b if a is None else np.maximum(a, b)


def _most(counts: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(np.max(counts, axis=0).tolist())
