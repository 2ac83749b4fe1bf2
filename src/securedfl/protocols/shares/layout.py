"""Who owns which coordinates: slices of the shares within groups, and segments of the total over all peers.

Everything here is index arithmetic on public values, the same on every peer. Both slices and segments are dealt in
one *home order* of the peers, which is chosen such that a peer owns about the same coordinates in all its groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, wraps
from typing import Any, NamedTuple, TypeVar

from securedfl.designs.design import Design, Group

Interval = tuple[int, int]
"""Coordinates from the first up to, not including, the second."""


class Sending(NamedTuple):
    """One slice of a share on its way to its owner.

    Attributes
    ----------
    to, first, end
        The owner and its slice.
    in_full
        Whether it is not a mask that a seed can stand for.
    kept
        Of a slice in full, the parts that are random all the same, because the sender keeps what is not.
    """

    to: int
    first: int
    end: int
    in_full: bool
    kept: tuple[Interval, ...]


T = TypeVar("T")
_SWEEPS = 20


def cache_per_peer(method: Callable[[Any, int], T]) -> Callable[[Any, int], T]:
    """Keep a method's answers with its object, because every chunk asks again."""

    @wraps(method)
    def cached(self: Any, u: int) -> T:
        key = (method.__name__, u)
        if key not in self.answers:
            self.answers[key] = method(self, u)
        answer: T = self.answers[key]
        return answer

    return cached


class Reduction:
    """Who sends what to whom when owned coordinates are added up: segments of the total, dealt in an order.

    Parameters
    ----------
    order
        The peers that take part; the j-th computes the total of the j-th segment.
    owned
        For each of them the coordinates that it has a part of, as disjoint intervals.
    size
        The number of coordinates.
    """

    def __init__(self, order: Sequence[int], owned: Mapping[int, tuple[Interval, ...]], size: int) -> None:
        self.order, self.owned = tuple(order), owned
        self.segments = {u: cut(size, len(order), j) for j, u in enumerate(order)}
        self.answers: dict[tuple[str, int], Any] = {}

    @cache_per_peer
    def reducing(self, u: int) -> list[tuple[int, tuple[Interval, ...]]]:
        """Return (segment owner, intervals) for all that a peer adds to other peers' segments."""
        parts = [(q, intersect(self.owned[u], *self.segments[q])) for q in self.order if q != u]
        return [(q, pieces) for q, pieces in parts if pieces]

    @cache_per_peer
    def totalling(self, u: int) -> list[tuple[int, tuple[Interval, ...]]]:
        """Return (peer, intervals) for all that is added to a peer's own segment, its own part included."""
        parts = [(v, intersect(self.owned[v], *self.segments[u])) for v in self.order]
        return [(v, pieces) for v, pieces in parts if pieces]

    @cache_per_peer
    def telling(self, u: int) -> list[int]:
        """Return whom a peer sends the total of its segment to."""
        return [v for v in self.order if v != u] if u in self.gathering else []

    @cached_property
    def gathering(self) -> list[int]:
        """The owners of segments that are not empty, in the order of the coordinates."""
        return [q for q, (first, end) in self.segments.items() if first < end]


class Layout:
    """The owners of all coordinates for one average.

    Parameters
    ----------
    design
        Who meets whom.
    at
        The partitions in use, one per share.
    size
        The number of coordinates.
    """

    def __init__(self, design: Design, at: tuple[int, ...], size: int) -> None:
        self.size = size
        self.order = home_order(design, at)
        rank = {u: j for j, u in enumerate(self.order)}
        # A group of one holds no share: a share that only its owner ever touches hides nothing from anybody.
        self.groups: list[dict[int, Group]] = [
            {
                i: tuple(sorted(group, key=rank.__getitem__))
                for i, index in enumerate(at)
                if len(group := design.group(u, index)) > 1
            }
            for u in range(design.n)
        ]
        self.answers: dict[tuple[str, int], Any] = {}

    def slice_of(self, group: Group, owner: int) -> Interval:
        """Return the coordinates of a group's share that a member owns."""
        return cut(self.size, len(group), group.index(owner))

    @cache_per_peer
    def owned(self, u: int) -> tuple[Interval, ...]:
        """Return the coordinates that a peer owns in any of its groups, as disjoint intervals."""
        slices = [self.slice_of(group, u) for group in self.groups[u].values()]
        return union(slices or [(0, self.size)])

    @cached_property
    def remainder(self) -> list[int]:
        """For each peer which of its shares is not random, and so must be sent; -1 if it has none.

        Any would do. They are chosen such that each peer is sent about as much as it sends, because all wait for the
        busiest line. Where nobody is without a group that is simply one partition for all. Local search from a few
        starts comes close enough.
        """
        vector = math.lcm(*{len(group) for groups in self.groups for group in groups.values()})
        options = [
            {i: _weights(u, group, vector // len(group)) for i, group in groups.items()}
            for u, groups in enumerate(self.groups)
        ]
        peers = range(len(options))
        starts = [[first] * len(peers) for first in range(max(map(len, options)))]
        starts += [list(peers), [u // 2 for u in peers]]
        return min((_balanced(options, start) for start in starts), key=lambda found: found[0])[1]

    @cache_per_peer
    def sending(self, u: int) -> list[Sending]:
        """Return every slice that a peer sends away, those in full last.

        On every coordinate one share is not random. It is kept where the peer owns the coordinate itself; elsewhere it
        is sent, as part of one and the same share (`remainder`).
        """
        own = self.owned(u)
        slices = [(v, i, *self.slice_of(group, v)) for i, group in self.groups[u].items() for v in group if v != u]
        found = [
            Sending(v, first, end, in_full, intersect(own, first, end) if in_full else ())
            for v, i, first, end in slices
            if first < end
            for in_full in [i == self.remainder[u] and not covers(own, first, end)]
        ]
        return sorted(found, key=lambda sending: sending.in_full)

    @cache_per_peer
    def receiving(self, u: int) -> list[tuple[int, int, int]]:
        """Return (sender, first, end) for every slice that a peer is sent."""
        return [
            (v, *self.slice_of(group, u))
            for group in self.groups[u].values()
            for v in group
            if v != u and len(range(*self.slice_of(group, u)))
        ]

    @cached_property
    def reduction(self) -> Reduction:
        """How the owned coordinates are added up."""
        return Reduction(self.order, {u: self.owned(u) for u in self.order}, self.size)


@lru_cache(maxsize=64)
def layout_for(design: Design, at: tuple[int, ...], size: int) -> Layout:
    """Return the layout for these partitions; kept, because every chunk asks for it."""
    return Layout(design, at, size)


@lru_cache(maxsize=64)
def home_order(design: Design, at: tuple[int, ...]) -> tuple[int, ...]:
    """Order the peers such that each tends to have the same rank in all of its groups.

    A colouring in which the members of every group have different colours would make the ranks the same everywhere,
    and a peer would then own one slice instead of several: fewer masks to expand and fewer bytes in the reduction.
    Local search from a few starts comes close enough; any order is correct.
    """
    mates = [[v for index in at for v in design.group(u, index) if v != u] for u in range(design.n)]
    colours = max(len(group) for index in at for group in design.partition(index))
    starts = [[u // step % colours for u in range(design.n)] for step in (1, colours, colours**2)]
    starts += [[(u + u // colours) % colours for u in range(design.n)]]
    found = min((_settle(start, mates, colours) for start in starts), key=lambda colour: _clashes(colour, mates))
    return tuple(sorted(range(design.n), key=lambda u: (found[u], u)))


def _settle(colour: list[int], mates: Sequence[Sequence[int]], colours: int) -> list[int]:
    """Move each peer to the colour that is rarest among those it meets, until nothing changes."""
    colour = list(colour)
    for _ in range(_SWEEPS):
        changed = False
        for u, others in enumerate(mates):
            counts = [0] * colours
            for v in others:
                counts[colour[v]] += 1
            if min(counts) < counts[colour[u]]:
                colour[u], changed = counts.index(min(counts)), True
        if not changed:
            break
    return colour


def _clashes(colour: Sequence[int], mates: Sequence[Sequence[int]]) -> int:
    return sum(colour[u] == colour[v] for u, others in enumerate(mates) for v in others)


def next_in(group: Group, u: int) -> int:
    """Return the member after a peer, who stands in for it."""
    return group[(group.index(u) + 1) % len(group)]


def _weights(u: int, group: Group, each: int) -> dict[int, int]:
    """Return how much a peer sends to each member if its share for this group is sent, in slices of a weight.

    `resilient` sends a copy of its own slice to the next member; counted alike, it suits `shares` as well.
    """
    found = {v: each for v in group if v != u}
    found[next_in(group, u)] += each
    return found


def _balanced(options: Sequence[Mapping[int, Mapping[int, int]]], start: Sequence[int]) -> tuple[int, list[int]]:
    """Choose one of each peer's options, beginning anywhere; return the largest load of all peers, and the choices.

    A peer moves to the option that makes the sum of squared loads least, until nothing changes.
    """
    load, chosen = [0] * len(options), [-1] * len(options)

    def move(u: int, to: int) -> None:
        for sign, i in ((-1, chosen[u]), (1, to)):
            for v, weight in options[u].get(i, {}).items():
                load[v] += sign * weight
        chosen[u] = to

    def cost(u: int, i: int) -> int:
        return sum((2 * load[v] + weight) * weight for v, weight in options[u][i].items())

    for u, own in enumerate(options):
        if own:
            move(u, sorted(own)[start[u] % len(own)])
    for _ in range(_SWEEPS):
        before = list(chosen)
        for u, own in enumerate(options):
            if len(own) > 1:
                kept = chosen[u]
                move(u, -1)
                move(u, min(own, key=lambda i: (cost(u, i), i != kept, i)))
        if chosen == before:
            break
    return max(load), chosen


def cut(size: int, parts: int, j: int) -> Interval:
    """Return the j-th of ``parts`` nearly equal pieces."""
    return size * j // parts, size * (j + 1) // parts


def union(intervals: Sequence[Interval]) -> tuple[Interval, ...]:
    """Return the same coordinates as disjoint, ascending, non-empty intervals."""
    result: list[Interval] = []
    for first, end in sorted(intervals):
        if first == end:
            continue
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return tuple(result)


def intersect(intervals: Sequence[Interval], first: int, end: int) -> tuple[Interval, ...]:
    """Return the parts of disjoint intervals that lie in [first, end)."""
    return tuple((max(a, first), min(b, end)) for a, b in intervals if max(a, first) < min(b, end))


def covers(intervals: Sequence[Interval], first: int, end: int) -> bool:
    """Tell whether disjoint, merged intervals contain all of [first, end)."""
    return any(a <= first and end <= b for a, b in intervals)
