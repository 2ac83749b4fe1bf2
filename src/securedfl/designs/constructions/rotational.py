"""Resolvable block designs that a group turns about one fixed point (Buratti and Zuanni 1998)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from securedfl.designs.constructions.abelian import add
from securedfl.designs.constructions.classes import Classes, as_classes
from securedfl.designs.constructions.shipped import solutions


@dataclass(frozen=True)
class Rotational:
    """Base blocks in an abelian group with a subgroup of s - 1 elements; the fixed point has the last number.

    The differences within the blocks are all elements outside the subgroup, once each, and so are the
    members of the blocks up to the subgroup. So the fixed point with the subgroup, and the translates of all
    blocks by the subgroup, are a partition; its own translates are the others, and all pairs meet.

    The blocks were found by search among those that some automorphism of the group permutes.
    """

    s: int
    group: tuple[int, ...]
    subgroup: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]

    @property
    def n(self) -> int:
        """The number of points."""
        return int(np.prod(self.group)) + 1

    def develop(self) -> Classes:
        """Return the (n - 1)/(s - 1) partitions."""
        within = np.array(self.subgroup)
        base = np.array(self.blocks)
        moved = add(self.group, base[None, :, :], within[:, None, None]).reshape(-1, self.s)
        elements = np.arange(self.n - 1)
        cosets = add(self.group, elements[:, None], within[None, :]).min(axis=1)
        turns = elements[cosets == elements][:, None, None]
        fixed = np.full((len(turns), 1, 1), self.n - 1)
        first = np.concatenate([add(self.group, within[None, None, :], turns), fixed], axis=2)
        return as_classes(np.concatenate([first, add(self.group, moved[None, :, :], turns)], axis=1))


@lru_cache(maxsize=1)
def rotational() -> dict[tuple[int, int], Rotational]:
    """Return the shipped designs by (n, s)."""
    found = {}
    for item in solutions("rotational"):
        # The file has the members of all blocks in one list, to stay small.
        flat, s = item["base"], item["s"]
        blocks = tuple(tuple(flat[i : i + s]) for i in range(0, len(flat), s))
        design = Rotational(s, tuple(item["group"]), tuple(item["subgroup"]), blocks)
        found[design.n, s] = design
    return found
