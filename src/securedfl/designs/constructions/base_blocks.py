"""Designs from base blocks that a group turns into all the others; the blocks in files were found by search."""

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


@lru_cache(maxsize=2)
def shipped(file: str) -> dict[tuple[int, int], Construction]:
    """Return the constructions from the base blocks in a file, "starters" or "rotational", by (n, s).

    Points are ``levels`` copies of an abelian group, point ``p`` being element ``p % order`` of level ``p // order``;
    those after these stay fixed. Base blocks that are translated by a subgroup (``within``) are a partition. Its
    translates are the others: by one element of each coset of the subgroup, or as ``turns`` say.

    A starter has all blocks of a partition, so that the subgroup is zero alone. 1-rotational designs (Buratti, Zuanni
    1998) have one fixed point, which together with a subgroup of s - 1 elements is a block. The differences within the
    other blocks are all elements outside the subgroup, once each, and so are their members up to the subgroup, so that
    all pairs meet.
    """
    found = {}
    for item in solutions(file):
        s, group, levels, fixed = item["s"], tuple(item["group"]), item["levels"], item["fixed"]
        order = math.prod(group)
        # The file has the members of all blocks of a base in one list, to stay small.
        bases = [np.array(base).reshape(-1, s) for base in item["bases"]]
        elements, within = np.arange(order), np.array(item.get("within", [0]))
        cosets = add(group, elements[:, None], within[None, :]).min(axis=1)
        turns = [np.array(some) for some in item.get("turns", [])] or [elements[cosets == elements]] * len(bases)
        different = all((np.diff(np.sort(base % order, axis=1), axis=1) > 0).all() for base in bases)
        upright = (levels, fixed) == (s, 0) and different
        build = partial(_turned, group, levels, bases, within, turns, upright=upright, order=item.get("order"))
        found[levels * order + fixed, s] = Construction(sum(map(len, turns)) + upright, item["name"], build)
    return found


def _turned(
    group: tuple[int, ...],
    levels: int,
    bases: list[Classes],
    within: Classes,
    turns: list[Classes],
    *,
    upright: bool,
    order: list[int] | None,
) -> Classes:
    """Complete each base to a partition, and turn it into others.

    ``order`` lists them differently: those of the Kirkman system of 15 are in an order in which every prefix of m
    partitions withstands m - 1 colluders in the share protocol (and this system, unlike most, all 6 with its 7
    partitions). If there are as many levels as members of a group and points with the same element never meet
    (``upright``), they form the groups of one partition more.
    """
    parts = []
    for base, elements in zip(bases, turns, strict=True):
        blocks = develop(group, base, levels, within).reshape(-1, base.shape[1])
        # a block that the subgroup turns into itself counts once
        _, first = np.unique(np.sort(blocks, axis=1), axis=0, return_index=True)
        parts.append(develop(group, blocks[np.sort(first)], levels, elements))
    classes = np.concatenate(parts)
    if upright:
        columns = np.arange(levels * math.prod(group)).reshape(levels, -1).T
        return np.concatenate([classes, as_classes(columns[None])])
    return classes[order] if order else classes
