"""Starters: base partitions whose translates are all the others; found by search, shipped as data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from securedfl.designs.constructions.classes import Classes, as_classes
from securedfl.designs.constructions.shipped import solutions


@dataclass(frozen=True)
class Starter:
    """Base partitions of Z_m x {0..levels-1} plus fixed points.

    Point ``p < levels * m`` has level ``p // m`` and residue ``p % m``; the points after these stay fixed.
    Adding 1..m to all residues turns each base partition into ``m`` partitions, listed by ``order`` if given:
    those of the Kirkman system of 15 are in an order in which every prefix of m partitions withstands m - 1
    colluders in the share protocol (and this system, unlike most, all 6 with its 7 partitions).

    If there are as many levels as members of a group and points of equal residue never meet, they form the
    groups of one partition more.
    """

    s: int
    m: int
    levels: int
    fixed: int
    bases: tuple[tuple[tuple[int, ...], ...], ...]
    order: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """The number of points."""
        return self.levels * self.m + self.fixed

    @property
    def gap(self) -> int:
        """The number of partitions."""
        return self.m * len(self.bases) + self.upright

    @property
    def upright(self) -> bool:
        """Whether the points of equal residue may form the groups of one partition more."""
        return (self.levels, self.fixed) == (self.s, 0) and all(
            len({point % self.m for point in block}) == self.s for base in self.bases for block in base
        )

    def develop(self) -> Classes:
        """Return the ``m`` translates of every base partition, and the upright groups if they are free."""
        bases = np.array(self.bases, dtype=np.int64)[:, None]
        turn = np.arange(self.m)[:, None, None]
        moved = bases // self.m * self.m + (bases % self.m + turn) % self.m
        turned = np.where(bases >= self.levels * self.m, bases, moved)
        developed = as_classes(turned.reshape(-1, *turned.shape[2:]))
        if self.upright:
            further = np.arange(self.n).reshape(self.s, self.m).T[None]
            return as_classes(np.concatenate([developed, further]))
        return developed[list(self.order)] if self.order else developed


@lru_cache(maxsize=1)
def starters() -> dict[tuple[int, int], Starter]:
    """Return the shipped starters by (n, s)."""
    found = {}
    for item in solutions("starters"):
        # The file has the members of all blocks in one list, to stay small.
        s, m, levels, fixed = item["s"], item["m"], item["levels"], item["fixed"]
        n = levels * m + fixed
        bases = np.array(item["base"]).reshape(-1, n // s, s).tolist()
        frozen = tuple(tuple(map(tuple, base)) for base in bases)
        found[n, s] = Starter(s, m, levels, fixed, frozen, tuple(item.get("order", ())))
    return found
