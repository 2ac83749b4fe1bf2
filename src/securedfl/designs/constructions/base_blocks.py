"""Designs from base blocks that a group turns into all the others; most of the blocks were found by search."""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from securedfl.designs.constructions.arithmetic import add
from securedfl.designs.constructions.construction import Classes, Construction, as_classes, develop
from securedfl.designs.constructions.shipped import solutions


def round_robin(n: int) -> Classes:
    """Return the n - 1 partitions of an even number of peers into pairs.

    One peer stays, the others sit on a circle; each turn of the circle pairs those opposite each other.
    """
    circle = n - 1
    turn = np.arange(circle)[:, None]
    step = np.arange(1, n // 2)[None, :]
    opposite = np.stack([(turn + step) % circle, (turn - step) % circle], axis=2)
    centre = np.stack([np.full((circle, 1), circle), turn], axis=2)
    return as_classes(np.concatenate([centre, opposite], axis=1))


@lru_cache(maxsize=1)
def starters() -> dict[tuple[int, int], Construction]:
    """Return the constructions from shipped starters by (n, s).

    A starter is one or several base partitions of Z_m x {0..levels-1} plus fixed points. Point ``p < levels * m`` has
    level ``p // m`` and residue ``p % m``; the points after these stay fixed.
    """
    found = {}
    for item in solutions("starters"):
        s, m, levels = item["s"], item["m"], item["levels"]
        n = levels * m + item["fixed"]
        # The file has the members of all blocks in one list, to stay small.
        bases = np.array(item["base"]).reshape(-1, n // s, s)
        different = (np.diff(np.sort(bases % m, axis=2), axis=2) > 0).all()
        upright = (levels, item["fixed"]) == (s, 0) and bool(different)
        build = partial(_turned, bases, m, levels, upright, item.get("order"))
        found[n, s] = Construction(m * len(bases) + upright, _name(n, s), build)
    return found


def _name(n: int, s: int) -> str:
    if (n, s) == (85, 5):
        return "packing of the lines of PG(3,4) (Denniston 1972) from 3 spreads found by search"
    kinds = {
        (3, 3): "Kirkman triple system (Ray-Chaudhuri, Wilson 1971) from a ",
        (3, 0): "nearly Kirkman triple system from a ",
    }
    return kinds.get((s, n % 6), "") + "starter found by search"


def _turned(bases: Classes, m: int, levels: int, upright: bool, order: list[int] | None) -> Classes:
    """Add 1..m to all residues: each base partition becomes m partitions.

    ``order`` lists them differently: those of the Kirkman system of 15 are in an order in which every prefix of m
    partitions withstands m - 1 colluders in the share protocol (and this system, unlike most, all 6 with its 7
    partitions). If there are as many levels as members of a group and points of equal residue never meet
    (``upright``), they form the groups of one partition more.
    """
    classes = np.concatenate([develop((m,), base, levels) for base in bases])
    if upright:
        return np.concatenate([classes, as_classes(np.arange(levels * m).reshape(-1, m).T[None])])
    return classes[order] if order else classes


@lru_cache(maxsize=1)
def rotational() -> dict[tuple[int, int], Construction]:
    """Return the constructions that a group turns about one fixed point by (n, s) (Buratti and Zuanni 1998).

    Base blocks in an abelian group with a subgroup of s - 1 elements; the fixed point has the last number. The blocks
    were found by search among those that some automorphism of the group permutes.
    """
    found = {}
    for item in solutions("rotational"):
        s, n = item["s"], math.prod(item["group"]) + 1
        # The file has the members of all blocks in one list, to stay small.
        blocks = np.array(item["base"]).reshape(-1, s)
        build = partial(_rotated, tuple(item["group"]), np.array(item["subgroup"]), blocks)
        method = "1-rotational resolvable design (Buratti, Zuanni 1998)"
        found[n, s] = Construction((n - 1) // (s - 1), method, build)
    return found


def _rotated(group: tuple[int, ...], within: Classes, blocks: Classes) -> Classes:
    """Return the (n - 1)/(s - 1) partitions.

    The differences within the blocks are all elements outside the subgroup, once each, and so are the members of the
    blocks up to the subgroup. So the fixed point with the subgroup, and the translates of all blocks by the subgroup,
    are a partition; its own translates are the others, and all pairs meet.
    """
    elements = np.arange(math.prod(group))
    cosets = add(group, elements[:, None], within[None, :]).min(axis=1)
    moved = develop(group, blocks, elements=within).reshape(-1, blocks.shape[1])
    base = np.concatenate([[[*within, len(elements)]], moved])
    return develop(group, base, elements=elements[cosets == elements])


ALL = tuple(range(8))

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
    """Return the ten partitions of 32 points in groups of 4, where each point misses just one other.

    Points are 8 l + v with four levels l and v in Z_2^3; adding an element of Z_2^3 to all v turns the design into
    itself. That leaves so little to choose that an exhaustive search took milliseconds (docs/mathematics/designs.md).
    """
    partitions = []
    for within, turns, blocks in _BASES:
        moved = np.array(blocks)[None] ^ np.array(within)[:, None, None]
        base = np.unique(np.sort(moved.reshape(-1, 4), axis=1), axis=0)
        partitions += [base ^ turn for turn in turns]
    return as_classes(np.stack(partitions))
