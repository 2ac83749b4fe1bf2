"""Partitions as arrays: what the constructions build, before it becomes a `Design`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Classes = npt.NDArray[np.integer[Any]]
"""Shape (partitions, groups, group size): the members of every group of every partition."""

Labels = npt.NDArray[np.integer[Any]]
"""Shape (partitions, peers): the group number of every peer in every partition."""


@dataclass(frozen=True)
class Plan:
    """A construction that is known to work: how many partitions it gives, its name, and how to carry it out.

    Planning is arithmetic only, so that the best of many constructions can be chosen before one is built.
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


def as_classes(blocks: npt.ArrayLike) -> Classes:
    """Return an integer array as `Classes`."""
    return np.asarray(blocks, dtype=np.int32)


def copies(classes: Classes, points: npt.ArrayLike) -> Classes:
    """Lay one copy of a design over each row of ``points`` and join the copies partition by partition."""
    rows = np.asarray(points, dtype=np.int32)
    gap, _, size = classes.shape
    return as_classes(rows[:, classes].transpose(1, 0, 2, 3).reshape(gap, -1, size))
