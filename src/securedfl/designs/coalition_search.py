"""The search for the worst coalition: all coalitions of a size, or those that are most likely to learn something.

It does not know how knowledge is computed: `securedfl.designs.coalitions` asks by a graph, `securedfl.privacy` also by
running a protocol on symbols.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from securedfl.designs.design import Group, groups
from securedfl.errors import PrivacyError

Labels = npt.NDArray[np.integer]
"""``labels[i, p]``: the group of peer p in the i-th partition that is used."""

Coalitions = npt.NDArray[np.int64]
"""One coalition per row."""

Levels = npt.NDArray[np.int8]
Evaluate = Callable[[Coalitions], tuple[Levels, npt.NDArray[np.int64]]]
"""For each coalition and iteration: per peer 0 (only the total), 1 (some function of it and others) or 2 (exposed);
and the dimension. Shapes (coalitions, iterations, n) and (coalitions, iterations)."""

TOTAL, PARTIAL, EXPOSED = 0, 1, 2

GLANCE = 64
"""Coalitions that are tried at least: as many as cost no more than one."""

_GROUPS_GLANCED = 8
"""Partitions of which a glance is aimed at the smallest group."""

_AIMED_WORK = 300_000
"""Members times partitions that coalitions are aimed by: some tens of milliseconds."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Exposure:
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

    @property
    def severity(self) -> tuple[int, int]:
        """How many peers the worst coalition exposes, then how many functions it learns."""
        return self.exposed_by_iteration[-1], self.dimension_by_iteration[-1]


def exposure(
    n: int, size: int, evaluate: Evaluate, *, limit: int, effort: int, labels: Labels | None = None
) -> Exposure:
    """Examine the `candidates` of a size, with the same parameters, and return the worst of what they learn."""
    about = np.zeros((n, n), dtype=np.int8)
    examined = breaking = 0
    worst, most = ((-1, -1), ()), []
    for coalitions in candidates(n, size, evaluate, limit=limit, effort=effort, labels=labels):
        levels, dimension = evaluate(coalitions)
        exposed = (levels == EXPOSED).sum(axis=2)
        examined += len(coalitions)
        breaking += int((exposed[:, -1] > 0).sum())
        first = np.lexsort((-np.arange(len(coalitions)), dimension[:, -1], exposed[:, -1]))[-1]
        found = (int(exposed[first, -1]), int(dimension[first, -1])), tuple(coalitions[first].tolist())
        worst = max(worst, found, key=lambda one: one[0])
        most.append((exposed.max(axis=0), dimension.max(axis=0)))
        learning = levels[:, -1].any(axis=1)
        coalitions, learned = coalitions[learning], levels[learning, -1]
        for member in np.unique(coalitions):
            of_member = learned[(coalitions == member).any(axis=1)]
            about[member] = np.maximum(about[member], of_member.max(axis=0))
    by_iteration = np.max(most, axis=0)
    return Exposure(
        exhaustive=math.comb(n, size) <= limit,
        examined=examined,
        breaking=breaking,
        worst=worst[1],
        exposed_by_iteration=tuple(by_iteration[0].tolist()),
        dimension_by_iteration=tuple(by_iteration[1].tolist()),
        levels=about,
    )


def worst_of(found: Sequence[Exposure]) -> Exposure:
    """Return the worst of several exposures of the same peers, for instance in several rounds."""
    return Exposure(
        exhaustive=all(one.exhaustive for one in found),
        examined=max(one.examined for one in found),
        breaking=max(one.breaking for one in found),
        worst=max(found, key=lambda one: one.severity).worst,
        exposed_by_iteration=tuple(np.max([one.exposed_by_iteration for one in found], axis=0).tolist()),
        dimension_by_iteration=tuple(np.max([one.dimension_by_iteration for one in found], axis=0).tolist()),
        levels=np.maximum.reduce([one.levels for one in found]),
    )


def candidates(
    n: int, size: int, evaluate: Evaluate, *, limit: int, effort: int, labels: Labels | None = None
) -> Iterator[Coalitions]:
    """Yield the coalitions to examine, in batches of some megabytes; always the same for the same arguments.

    Parameters
    ----------
    n, size
        Peers, and members of a coalition.
    evaluate
        What coalitions learn.
    limit
        Up to how many coalitions all are yielded.
    effort
        Otherwise, besides a `glance`, about so many: a third each grown member by member, aimed at a peer or a group,
        and random. With no effort, there is only the glance.
    labels
        The groups that meet, one row per partition in use; without them nothing is aimed at.
    """
    if not 1 <= size < n:
        raise PrivacyError(f"a coalition of {size} among {n} peers makes no sense; choose 1 to {n - 1}")
    every = math.comb(n, size) <= limit
    step = max(1, (1 << 21) // n)
    for part in [_every(n, size)] if every else _searched(n, size, evaluate, effort, labels):
        for at in range(0, len(part), step):
            yield part[at : at + step]


@lru_cache(maxsize=4)
def _every(n: int, size: int) -> Coalitions:
    flat = chain.from_iterable(combinations(range(n), size))
    return np.fromiter(flat, dtype=np.int64).reshape(-1, size)


def _searched(n: int, size: int, evaluate: Evaluate, effort: int, labels: Labels | None) -> Iterator[Coalitions]:
    yield glance(n, size, labels)
    if effort:
        source = random.Random(size)
        yield _grown(n, size, evaluate, effort // 3, source)
        if labels is not None:
            yield _aimed(n, size, labels, effort // 3, source)
        yield _random(n, size, effort // 3)


def glance(n: int, size: int, labels: Labels | None = None) -> Coalitions:
    """Return few coalitions: around the peer that meets nobody most often, around small groups, and random ones."""
    found = _random(n, size, GLANCE)
    if labels is None:
        return found
    sizes = [np.bincount(row) for row in labels]
    alone = np.sum([count[row] == 1 for row, count in zip(labels, sizes, strict=True)], axis=0)
    targets = [[int(np.argmax(alone))]]
    for row, count in zip(labels[:_GROUPS_GLANCED], sizes, strict=False):
        targets.append(np.flatnonzero(row == np.argmin(np.where(count > 1, count, n))).tolist())
    source = random.Random(n)
    around = []
    for target in targets:
        groups = (np.flatnonzero(row == row[peer]).tolist() for peer in target for row in labels)
        around.append(_around(set(target), groups, n, size, source))
    return np.concatenate([around, found[len(around) :]])


@lru_cache(maxsize=4)
def _random(n: int, size: int, count: int) -> Coalitions:
    """Return random coalitions, by Floyd's algorithm; numbers of a bit generator stay the same in all versions."""
    numbers = np.random.PCG64(n).random_raw(count * size).reshape(count, size)
    found = np.empty((count, size), dtype=np.int64)
    for k, last in enumerate(range(n - size, n)):
        found[:, k] = numbers[:, k] % np.uint64(last + 1)
        again = (found[:, :k] == found[:, k : k + 1]).any(axis=1)
        found[again, k] = last
    return np.sort(found, axis=1)


def _grown(n: int, size: int, evaluate: Evaluate, effort: int, source: random.Random) -> Coalitions:
    """Grow coalitions from one member, each time by the one who adds most (ties at random)."""
    grown = []
    for start in _shuffled(range(n), source)[: effort // (n * size)]:
        members = [start]
        while len(members) < size:
            others = _shuffled((p for p in range(n) if p not in members), source)
            levels, dimension = evaluate(np.array([[*members, p] for p in others]))
            exposed = (levels[:, -1] == EXPOSED).sum(axis=1)
            members.append(others[int(np.lexsort((dimension[:, -1], exposed))[-1])])
        grown.append(sorted(members))
    return np.array(grown, dtype=np.int64).reshape(-1, size)


def _aimed(n: int, size: int, labels: Labels, effort: int, source: random.Random) -> Coalitions:
    """Try to cut off groups, and those single peers that have no more groups than the coalition has members."""
    rows, partitions = labels.tolist(), [groups(row) for row in labels]

    def groups_of(target: Group) -> list[Group]:
        return [partition[row[peer]] for peer in target for row, partition in zip(rows, partitions, strict=True)]

    alone = [(peer,) for peer in range(n) if sum(len(group) > 1 for group in groups_of((peer,))) <= size]
    targets = _shuffled(chain(alone, chain.from_iterable(partitions)), source)
    # larger coalitions and more partitions are more work for each target
    most = max(1, min(effort, _AIMED_WORK // (size * len(rows))))
    aimed = [_around(set(target), groups_of(target), n, size, source) for target in targets[:most]]
    return np.array(aimed, dtype=np.int64)


def _around(inside: set[int], groups: Iterable[Iterable[int]], n: int, size: int, source: random.Random) -> list[int]:
    """Return a coalition outside a set of peers that watches as many of their groups as possible, greedily."""
    unwatched = [outside for group in groups if (outside := set(group) - inside)]
    members: set[int] = set()
    while unwatched and len(members) < size:
        watching = Counter(chain.from_iterable(unwatched))
        most = max(watching.values())
        ties = sorted(peer for peer, count in watching.items() if count == most)
        member = ties[int(source.random() * len(ties))]
        members.add(member)
        unwatched = [outside for outside in unwatched if member not in outside]
    others = (peer for peer in range(n) if peer not in members and peer not in inside)
    return sorted([*members, *islice(chain(others, sorted(inside)), size - len(members))])


def _shuffled(items: Iterable[T], source: random.Random) -> list[T]:
    """Shuffle by sorting: the order is the same in all versions of Python."""
    return sorted(items, key=lambda _: source.random())
