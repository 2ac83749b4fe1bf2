"""Edge colouring of 3-regular bipartite graphs, in time nearly linear in their size."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from securedfl.designs.constructions.classes import Classes


def three_colours(first: Classes, second: Classes) -> npt.NDArray[np.int64]:
    """Colour points 0, 1, 2 so that each triple of both partitions has all three colours."""
    points = first.size
    left = np.empty(points, dtype=np.int64)
    right = np.empty(points, dtype=np.int64)
    left[first.reshape(-1)] = np.repeat(np.arange(len(first)), 3)
    right[second.reshape(-1)] = np.repeat(np.arange(len(second)), 3)
    matched = _perfect_matching(first.tolist(), left.tolist(), right.tolist())
    colour = [1] * points
    for point in matched:
        colour[point] = 0
    _alternate(first.tolist(), second.tolist(), left.tolist(), right.tolist(), colour)
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
