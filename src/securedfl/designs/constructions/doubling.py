"""Doubling: two partitions into triples of u points become four partitions of 2u points (groups of 3 only)."""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.classes import Classes, Plan, as_classes
from securedfl.designs.constructions.colouring import three_colours


def doubled(base: Plan) -> Plan:
    """Plan a design on twice the points: 2t partitions from t, or 2t - 1 if t is odd.

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

    return Plan(2 * even + base.gap % 2, f"doubling (Kotzig, Rosa 1974) of [{base.method}]", build)


_HALF = np.array([[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]])
"""The columns are the even words of length 3: any two colours see all four combinations."""


def _pair(first: Classes, second: Classes) -> Classes:
    colour = three_colours(first, second)
    half = _HALF[colour]
    parts = []
    for k in range(4):
        parts.append(np.concatenate([first * 2 + half[first, k], second * 2 + 1 - half[second, k]]))
    return as_classes(parts)
