"""Which sums of peers' parameters follow from what a coalition can compute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from securedfl.privacy.symbolic.algebra import Matrix, Ring
from securedfl.protocols.steps import Array

MOST_ROWS = 14
"""Up to which number of connected rows all combinations are tried; beyond, single rows and pairs."""


def computable_sums(bases: Iterable[tuple[Array, Matrix]], coordinates: int, ring: Ring) -> list[tuple[int, ...]]:
    """Return the smallest sets of peers whose sum, at some coordinate, is in the span of a reduced basis.

    In a reduced basis every row has a one where all the others have zeros. So a sum, which has only ones, is a sum of
    rows.

    Parameters
    ----------
    bases
        Reduced bases, with the places (peer times coordinates plus coordinate) that their columns stand for.
    coordinates, ring
        How many there are, and what the entries are elements of.
    """
    found: set[frozenset[int]] = set()
    # coordinates are mostly treated alike
    alike = {(tuple(places // coordinates), basis.tobytes()): (places, basis) for places, basis in bases}
    for places, basis in alike.values():
        # a row belongs to the part of its columns, of which it ties all
        part_of = connected([np.flatnonzero(row).tolist() for row in basis], basis.shape[1])
        parts = part_of[(basis != 0).argmax(axis=1)]
        for part in np.unique(parts):
            combined = _combinations(basis[parts == part], ring)
            for sums in combined[(combined <= 1).all(axis=1)] != 0:
                if len(set((places[sums] % coordinates).tolist())) == 1:
                    found.add(frozenset((places[sums] // coordinates).tolist()))
    smallest: list[frozenset[int]] = []
    for peers in sorted(found, key=lambda peers: (len(peers), sorted(peers))):
        if not any(known <= peers for known in smallest):
            smallest.append(peers)
    return sorted(tuple(sorted(peers)) for peers in smallest)


def connected(ties: Iterable[Sequence[int]], count: int) -> Array:
    """Return for each of so many columns the first of those that it is tied to, directly or not: union-find."""
    parent = list(range(count))

    def find(column: int) -> int:
        while parent[column] != column:
            parent[column] = column = parent[parent[column]]
        return column

    for first, *rest in filter(None, ties):
        for column in rest:
            low, high = sorted((find(first), find(column)))
            parent[high] = low
    return np.array([find(column) for column in range(count)], dtype=np.intp)


def _combinations(rows: Matrix, ring: Ring) -> Matrix:
    """Return the sums of all sets of rows but the empty one; of many rows, those of one and two."""
    if len(rows) > MOST_ROWS:
        first, second = np.triu_indices(len(rows), 1)
        return np.vstack([rows, ring.add(rows[first], rows[second])])
    combined = np.zeros_like(rows[:1])
    for row in rows:
        combined = np.vstack([combined, ring.add(combined, row[None])])
    return combined[1:]
