"""A resolvable group-divisible design: 32 points in ten partitions, where each point misses just one other.

Such designs are known for all n = 8 mod 12 but 8, 20 and a few open cases (Shen 1987, and others since). This one has
the points 8 l + v with four levels l and v in Z_2^3; adding an element of Z_2^3 to all v turns it into itself.

A pair within a level has a difference of order two, which turns the pair's block into itself. So a block is a plane
within a level, or lies on two levels as (x, x+e, y, y+e), or has a point of every level. With one orbit of the second
kind on each of the six pairs of levels, the last kind leaves two differences of each pair of levels to it. These differ
by e_lm, and the sum over any three levels must vanish, so e_lm = f_l + f_m, with f = 0, 1, 2, 4 up to automorphisms.
What remains to be chosen was found by an exhaustive search, in milliseconds.
"""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.classes import Classes, as_classes

LEVEL = 8
"""Points per level."""

ALL = tuple(range(LEVEL))

_BASES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...]], ...] = (
    (ALL, (0,), ((0, 3, 5, 6), (8, 10, 12, 14), (16, 17, 20, 21), (24, 25, 26, 27))),
    (ALL, (0,), ((0, 1, 8, 9), (16, 22, 25, 31))),
    (ALL, (0,), ((0, 14, 19, 29),)),
    (ALL, (0,), ((0, 15, 23, 31),)),
    ((0, 1, 2, 3), (0, 4), ((0, 12, 22, 26), (4, 9, 16, 29))),
    ((0, 2, 5, 7), (0, 1), ((0, 2, 16, 18), (9, 12, 27, 30), (1, 10, 20, 31))),
    ((0, 3, 4, 7), (0, 1), ((0, 4, 24, 28), (9, 10, 21, 22), (1, 11, 16, 26))),
)
"""Base partitions: the translations that complete one, those that turn it into others, and its base blocks."""


def divisible() -> Classes:
    """Return the ten partitions of 32 points in groups of 4."""
    partitions = []
    for within, turns, blocks in _BASES:
        moved = np.array(blocks)[None] ^ np.array(within)[:, None, None]
        base = np.unique(np.sort(moved.reshape(-1, 4), axis=1), axis=0)
        partitions += [base ^ turn for turn in turns]
    return as_classes(np.stack(partitions))
