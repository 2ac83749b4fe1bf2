"""Nearly Kirkman triple systems: groups of 3, n = 0 mod 6, n/2 - 1 partitions (Kotzig, Rosa 1974)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from securedfl.designs.constructions.classes import Classes, Plan, as_classes, empty
from securedfl.designs.constructions.fields import divisors
from securedfl.designs.constructions.pairwise import standard_form
from securedfl.designs.constructions.resolvable import block_design, recipe
from securedfl.designs.constructions.transversal import row_limit, transversal


def from_frame(n: int, plan: Callable[[int], Plan]) -> Plan | None:
    """Plan a system by filling a Kirkman frame (Stinson 1987), or None.

    A Kirkman triple system with r partitions, without its last point, is a frame of r holes of 2 points: the
    partition of a hole misses just the hole. Blown up w-fold, it has w partitions for every hole of 2w
    points. Two new points and a hole carry a nearly Kirkman system of 2w + 2 points, which has w partitions
    and never joins the two new points: they complete each other. This gives 2 w r + 2 points.
    """
    half = (n - 2) // 2
    for r in divisors(half):
        w = half // r
        if n % 6 or r < 4 or r % 3 != 1 or w < 8 or row_limit(w) < 3 or recipe(r, 3) is None:
            continue
        inside = plan(2 * w + 2)
        if inside.gap == w:
            method = f"Kirkman frame of {r} holes, {w}-fold, filled by [{inside.method}]"
            return Plan(w * r, method, partial(_fill, r, w, inside))
    return None


def _fill(r: int, w: int, inside: Plan) -> Classes:
    frame = standard_form(block_design(r, 3), 3)[:, 1:].astype(np.int32)
    row, place = np.divmod(transversal(3, w), w)
    filler = _separate(inside.build())
    result = empty(r * w, (2 * w * r + 2) // 3, 3)
    for hole in range(r):
        across = (frame[hole][:, row] * w + place).transpose(1, 0, 2, 3).reshape(w, -1, 3)
        points = np.concatenate([np.arange(2 * w * hole, 2 * w * (hole + 1)), [2 * w * r, 2 * w * r + 1]])
        result[hole * w : (hole + 1) * w] = np.concatenate([across, points[filler]], axis=1)
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
