"""What a peer has between sharing and reducing: sums of shares over the coordinates that it owns, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securedfl.protocols.shares.layout import Interval, Reduction
from securedfl.protocols.steps import Array, Message


class Sums:
    """Sums over the coordinates that a peer owns; those of others take no memory.

    Parameters
    ----------
    parts
        The sums of disjoint intervals, which are added to in place.
    like
        An array of their dtype and further axes.
    """

    def __init__(self, parts: Mapping[Interval, Array], like: Array) -> None:
        self._parts, self._like = parts, like[:0].copy()

    @classmethod
    def of(cls, x: Array, owned: tuple[Interval, ...]) -> Sums:
        """Return a copy of what is owned of x."""
        return cls({interval: x[slice(*interval)].copy() for interval in owned}, x)

    @classmethod
    def zeros(cls, owned: tuple[Interval, ...], like: Array) -> Sums:
        """Return zeros for what is owned."""
        return cls({(first, end): _zeros(end - first, like) for first, end in owned}, like)

    def add(self, first: int, end: int, values: Array) -> None:
        """Add to coordinates that are owned."""
        part = self._part(first, end)
        part += values

    def joined(self, pieces: tuple[Interval, ...]) -> Array:
        """Return the coordinates of the intervals as one array, without a copy if they are in one piece."""
        found = [self._part(first, end) for first, end in pieces]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def within(self, owned: tuple[Interval, ...]) -> Sums:
        """Return the same sums within more coordinates, zero where these are new."""
        result = Sums.zeros(owned, self._like)
        for (first, end), part in self._parts.items():
            result.add(first, end, part)
        return result

    def total(self, me: int, reduction: Reduction, received: Mapping[int, Message]) -> Array:
        """Return the total of this peer's segment: what all peers own of it."""
        start, stop = reduction.segments[me]
        result = _zeros(stop - start, self._like)
        for u, pieces in reduction.totalling(me):
            message, at = (self.joined(pieces) if u == me else received[u]), 0
            for first, end in pieces:
                result[first - start : end - start] += message[at : at + end - first]
                at += end - first
        return result

    def _part(self, first: int, end: int) -> Array:
        if first == end:
            # slices of a vector that is shorter than a group
            return self._like
        for (start, stop), part in self._parts.items():
            if start <= first and end <= stop:
                return part[first - start : end - start]
        raise IndexError("coordinates that are not owned")


def _zeros(count: int, like: Array) -> Array:
    return np.zeros((count, *like.shape[1:]), dtype=like.dtype)
