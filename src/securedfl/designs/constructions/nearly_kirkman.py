"""Nearly Kirkman triple systems: groups of 3, n = 0 mod 6, n/2 - 1 partitions, by frames and by doubling."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from securedfl.designs.constructions.arithmetic import divisors
from securedfl.designs.constructions.construction import Classes, Construction, as_classes, empty, labels_of
from securedfl.designs.constructions.pairwise_balanced import standard_form
from securedfl.designs.constructions.resolvable import block_design, resolvable
from securedfl.designs.constructions.transversal import inflated, row_limit, transversal


def from_frame(n: int, known: Callable[[int], Construction]) -> Construction | None:
    """Return a system by filling a Kirkman frame (Stinson 1987), or None; ``known`` gives what fills the holes.

    A Kirkman triple system with r partitions, without its last point, is a frame of r holes of 2 points: the
    partition of a hole misses just the hole. Blown up w-fold, it has w partitions for every hole of 2w
    points. Two new points and a hole carry a nearly Kirkman system of 2w + 2 points, which has w partitions
    and never joins the two new points: they complete each other. This gives 2 w r + 2 points.
    """
    half = (n - 2) // 2
    for r in divisors(half):
        w = half // r
        if n % 6 or r < 4 or r % 3 != 1 or w < 8 or row_limit(w) < 3 or resolvable(r, 3) is None:
            continue
        inside = known(2 * w + 2)
        if inside.gap == w:
            method = f"Kirkman frame of {r} holes, {w}-fold, filled by [{inside.method}]"
            return Construction(w * r, method, partial(_fill, r, w, inside))
    return None


def _fill(r: int, w: int, inside: Construction) -> Classes:
    frame = standard_form(block_design(r, 3), 3)[:, 1:].astype(np.int32)
    fine, filler = transversal(3, w), _separate(inside.build())
    result = empty(r * w, (2 * w * r + 2) // 3, 3)
    for hole in range(r):
        points = np.concatenate([np.arange(2 * w * hole, 2 * w * (hole + 1)), [2 * w * r, 2 * w * r + 1]])
        result[hole * w : (hole + 1) * w] = np.concatenate([inflated(frame[hole], fine), points[filler]], axis=1)
    return result


def _separate(classes: Classes) -> Classes:
    """Renumber so that the last two points are a pair that never meets; with n/2 - 1 partitions there is one."""
    _, groups, size = classes.shape
    n = groups * size
    met = classes[(classes == 0).any(axis=2)]
    stranger = int(np.setdiff1d(np.arange(n), met)[0])
    others = np.delete(np.arange(n), [0, stranger])
    place = np.empty(n, dtype=np.int32)
    place[np.concatenate([others, [0, stranger]])] = np.arange(n)
    return as_classes(place[classes])


def doubled(base: Construction) -> Construction:
    """Return a design on twice the points: 2t partitions from t, or 2t - 1 if t is odd (Kotzig, Rosa 1974).

    Colour the points of two partitions P, Q so that every triple has three colours. (Triples of P against
    triples of Q, points as edges, is a 3-regular bipartite graph, so König's theorem colours it.) A point of
    colour c takes the half ``_HALF[c][k]`` in P and the other half in Q: for each of the four k this is a
    partition, and over all k every pair of halves of a triple is met once.
    """
    even = base.gap // 2 * 2

    def build() -> Classes:
        classes = base.build().astype(np.int32)
        parts = [_pair(classes[i], classes[i + 1]) for i in range(0, even, 2)]
        if base.gap % 2:
            # The last partition has no partner: two copies of it side by side are one partition.
            parts.append(np.concatenate([classes[-1] * 2, classes[-1] * 2 + 1])[None])
        return as_classes(np.concatenate(parts))

    return Construction(2 * even + base.gap % 2, f"doubling (Kotzig, Rosa 1974) of [{base.method}]", build)


_HALF = np.array([[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]])
"""The columns are the even words of length 3: any two colours see all four combinations."""


def _pair(first: Classes, second: Classes) -> Classes:
    colour = three_colours(first, second)
    half = _HALF[colour]
    parts = []
    for k in range(4):
        parts.append(np.concatenate([first * 2 + half[first, k], second * 2 + 1 - half[second, k]]))
    return as_classes(parts)


def three_colours(first: Classes, second: Classes) -> npt.NDArray[np.int64]:
    """Colour points 0, 1, 2 so that each triple of both partitions has all three colours."""
    left, right = labels_of(np.stack([first, second])).tolist()
    colour = [1] * first.size
    for point in _perfect_matching(first.tolist(), left, right):
        colour[point] = 0
    _alternate(first.tolist(), second.tolist(), left, right, colour)
    return np.array(colour)


def _perfect_matching(triples: list[list[int]], left: list[int], right: list[int]) -> list[int]:
    """Return one point per triple of the first partition, in different triples of the second.

    Random walks along alternating paths: in a regular graph they are short (Goel, Kapralov, Khanna 2010). The
    source is fixed, as a design is a function of its arguments.
    """
    draw = random.Random(len(triples)).random
    at_right = [-1] * len(triples)
    for start in range(len(triples)):
        path: list[int] = []
        vertex = start
        while True:
            point = triples[vertex][int(draw() * 3)]
            target = right[point]
            taken = at_right[target]
            if taken == point:
                continue
            path.append(point)
            if taken < 0:
                break
            vertex = left[taken]
        # Later steps of the walk overrule earlier ones: every left vertex keeps its last choice.
        last = {left[point]: point for point in path}
        vertex = start
        while True:
            point = last[vertex]
            target = right[point]
            taken, at_right[target] = at_right[target], point
            if taken < 0:
                break
            vertex = left[taken]
    return at_right


def _alternate(
    first: list[list[int]], second: list[list[int]], left: list[int], right: list[int], colour: list[int]
) -> None:
    """Colour the cycles that are left, 1 and 2 in turn, in place."""
    seen = [value == 0 for value in colour]
    for start in range(len(colour)):
        point, turn = start, 1
        while not seen[point]:
            seen[point] = True
            colour[point] = turn
            triple = second[right[point]] if turn == 1 else first[left[point]]
            point = next((p for p in triple if not seen[p]), start)
            turn = 3 - turn
