"""Deletion: remove points from a design with equal groups to get groups of s and s - 1."""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.classes import Labels


def delete(labels: Labels, count: int) -> Labels:
    """Remove ``count`` points (fewer than the group size), losing at most one partition.

    Points that never meet leave groups that are one short at worst, and cost nothing. If no such points
    are found, all are taken from one group: they meet in one partition only, which is dropped.
    """
    n = labels.shape[1]
    if count == 0:
        return labels
    chosen = strangers(labels, count)
    if chosen is None:
        leader = int(np.flatnonzero(labels[-1] == labels[-1, 0])[0])
        chosen = np.flatnonzero(labels[-1] == labels[-1, leader])[:count].tolist()
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
