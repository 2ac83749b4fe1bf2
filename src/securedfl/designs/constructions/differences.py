"""Difference matrices over abelian groups: transversal designs of orders that fields serve badly (12, 15, ...)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from securedfl.designs.constructions.abelian import add
from securedfl.designs.constructions.classes import Classes, as_classes
from securedfl.designs.constructions.shipped import solutions


@dataclass(frozen=True)
class DifferenceMatrix:
    """Permutations of an abelian group Z_a x Z_b x ..., any two differing by a permutation.

    The first two rows, zero and the identity, are not stored; the others are orthomorphisms, pairwise orthogonal,
    found by search among those that an automorphism of the group preserves (Johnson, Dulmage, Mendelsohn 1961
    found the first for order 12).
    """

    group: tuple[int, ...]
    maps: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> int:
        """The number of elements of the group."""
        return int(np.prod(self.group))

    @property
    def rows(self) -> int:
        """The number of rows of the matrix, and of the transversal design."""
        return len(self.maps) + 2

    def develop(self, k: int) -> Classes:
        """Return RTD(k, order) as an array [partition, group, row] of places.

        Column x of the matrix, translated by all elements, is partition x.
        """
        identity = tuple(range(self.order))
        columns = np.array([(0,) * self.order, identity, *self.maps])[:k].T
        return as_classes(add(self.group, columns[:, None, :], np.arange(self.order)[None, :, None]))


@lru_cache(maxsize=1)
def difference_matrices() -> dict[int, DifferenceMatrix]:
    """Return the shipped matrices by order."""
    items = solutions("differences")
    matrices = (DifferenceMatrix(tuple(item["group"]), tuple(map(tuple, item["maps"]))) for item in items)
    return {matrix.order: matrix for matrix in matrices}
