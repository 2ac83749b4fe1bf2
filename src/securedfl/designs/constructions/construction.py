"""What a construction is, and partitions as arrays: what it builds before that becomes a `Design`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.designs.constructions.arithmetic import add

Classes = npt.NDArray[np.integer[Any]]
"""Shape (partitions, groups, group size): the members of every group of every partition."""

Labels = npt.NDArray[np.integer[Any]]
"""Shape (partitions, peers): the group number of every peer in every partition."""


@dataclass(frozen=True)
class Construction:
    """A way to build a design that is known to work: how many partitions it gives, its name, and how to carry it out.

    Finding one is arithmetic only, so that the best of many can be chosen before anything is built.
    """

    gap: int
    method: str
    build: Callable[[], Classes]


def labels_of(classes: Classes) -> Labels:
    """Return the group number of every peer, shape (partitions, peers)."""
    gap, groups, size = classes.shape
    dtype = np.uint16 if groups < 1 << 16 else np.int32
    labels = np.zeros((gap, groups * size), dtype=dtype)
    numbers = np.repeat(np.arange(groups, dtype=dtype), size)
    for row, members in zip(labels, classes, strict=True):
        row[members.reshape(-1)] = numbers
    return labels


def empty(gap: int, groups: int, size: int) -> Classes:
    """Return room for classes, in two bytes per member where that is enough: large designs have millions."""
    return np.empty((gap, groups, size), dtype=np.uint16 if groups * size < 1 << 16 else np.int32)


def develop(
    group: tuple[int, ...], base: Classes, levels: int = 1, elements: npt.NDArray[np.integer[Any]] | None = None
) -> Classes:
    """Return the translates of base blocks by all elements of an abelian group, or by some: one partition for each.

    Points are ``levels`` copies of the group, level times order plus element; those beyond stay fixed.
    """
    order = math.prod(group)
    turns = np.arange(order) if elements is None else elements
    moving, level, place = base < levels * order, base // order * order, base % order
    result = empty(len(turns), *base.shape)
    # In slices: arithmetic needs several times the memory of its result.
    step = max(1, 1_000_000 // base.size)
    for first in range(0, len(turns), step):
        turn = turns[first : first + step, None, None]
        result[first : first + step] = np.where(moving, level + add(group, place, turn), base)
    return result


def as_classes(blocks: npt.ArrayLike) -> Classes:
    """Return an integer array as `Classes`."""
    return np.asarray(blocks, dtype=np.int32)


def copies(classes: Classes, points: npt.ArrayLike) -> Classes:
    """Lay one copy of a design over each row of ``points`` and join the copies partition by partition."""
    rows = np.asarray(points, dtype=np.int32)
    gap, _, size = classes.shape
    return as_classes(rows[:, classes].transpose(1, 0, 2, 3).reshape(gap, -1, size))


def delete(labels: Labels, count: int) -> Labels:
    """Remove ``count`` points (fewer than the group size) for groups of s and s - 1, losing at most one partition.

    Points that never meet leave groups that are one short at worst, and cost nothing. If no such points
    are found, all are taken from one group: they meet in one partition only, which is dropped.
    """
    n = labels.shape[1]
    if count == 0:
        return labels
    chosen = strangers(labels, count)
    if chosen is None:
        chosen = np.flatnonzero(labels[-1] == labels[-1, 0])[:count].tolist()
        labels = labels[:-1]
    keep = np.ones(n, dtype=bool)
    keep[chosen] = False
    return labels[:, keep]


def strangers(labels: Labels, count: int) -> list[int] | None:
    """Return points of which no two ever meet, or None: first fit, beginning with each of a few points."""
    n = labels.shape[1]
    for start in range(min(n, 12)):
        chosen = [start]
        free = ~(labels == labels[:, [start]]).any(axis=0)
        while len(chosen) < count and free.any():
            point = int(free.argmax())
            chosen.append(point)
            free &= ~(labels == labels[:, [point]]).any(axis=0)
        if len(chosen) == count:
            return chosen
    return None
