"""Pairwise balanced designs: blocks of several sizes that cover every pair of points exactly once.

They serve one purpose. If resolvable designs with groups of s exist on (s - 1)k + 1 points for every block
size k, then one exists on (s - 1)r + 1 points, r being the points of the pairwise balanced design (the closure
of Ray-Chaudhuri and Wilson 1971).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from securedfl.designs.constructions import transversal
from securedfl.designs.constructions.construction import Classes, as_classes, develop, empty
from securedfl.designs.constructions.field_designs import affine_geometry

Blocks = Classes
"""Shape (blocks, block size)."""


def transversal_blocks(k: int, m: int) -> Blocks:
    """Return the m^2 blocks of a transversal design on k rows of m points (the last row numbers partitions)."""
    return as_classes(transversal.blocks(k, m) + m * np.arange(k))


def with_rows(k: int, m: int, *, extra: bool) -> list[Blocks]:
    """Return k m points: a transversal design and its rows as blocks; ``extra`` adds a point to every row."""
    rows = np.arange(k * m).reshape(k, m)
    if extra:
        rows = np.concatenate([rows, np.full((k, 1), k * m)], axis=1)
    return [transversal_blocks(k, m), as_classes(rows)]


def completed(classes: Classes) -> list[Blocks]:
    """Add a point to all groups of a partition, another for every partition, and a block of the new points."""
    gap, groups, size = classes.shape
    n = groups * size
    new = np.broadcast_to(n + np.arange(gap)[:, None, None], (gap, groups, 1))
    blocks = np.concatenate([classes, new], axis=2).reshape(-1, size + 1)
    return [as_classes(blocks), as_classes(n + np.arange(gap)[None, :])]


def truncated(s: int, m: int, t: int) -> list[Blocks]:
    """Return s (s+1) m + s t + 1 points with blocks of s + 1, s m + 1 and s t + 1 (Wilson 1972).

    A transversal design on s + 2 rows loses all but t points of the last row; every point becomes s points, and
    each block is replaced by a small design on its s-fold points; one new point joins all rows.
    """
    blocks = transversal_blocks(s + 2, m)
    cut = (s + 1) * m + t
    long = blocks[blocks[:, -1] < cut]
    short = blocks[blocks[:, -1] >= cut][:, :-1]
    result = [_weighted(long, s, _punctured_plane(s)), _weighted(short, s, transversal_blocks(s + 1, s))]
    last = s * cut
    rows = np.arange(s * (s + 1) * m).reshape(s + 1, s * m)
    result.append(as_classes(np.concatenate([rows, np.full((s + 1, 1), last)], axis=1)))
    if t:
        result.append(as_classes(np.append(np.arange(s * (s + 1) * m, last), last)[None, :]))
    return [part for part in result if part.size]


def inflated(classes: Classes, m: int) -> list[Blocks]:
    """Return m (v - 1) + 1 points from a design of v points that meets every pair once (Wilson 1972).

    The design loses its last point, whose groups become rows; every other point becomes m points, each
    remaining block a transversal design, and one new point joins all rows.
    """
    _, groups, size = classes.shape
    lost = groups * size - 1
    blocks = classes.reshape(-1, size)
    through = (blocks == lost).any(axis=1)
    whole = blocks[~through].astype(np.int32)
    rest = np.sort(blocks[through], axis=1)[:, :-1].astype(np.int32)
    rows = (rest[:, :, None] * m + np.arange(m)).reshape(len(rest), -1)
    new = np.full((len(rest), 1), lost * m)
    return [
        _weighted(whole, m, transversal_blocks(size, m)),
        as_classes(np.concatenate([rows, new], axis=1)),
    ]


def thirty_four() -> list[Blocks]:
    """Return 34 points with blocks of 4 and one block of 7, the one order that no recursion here reaches.

    Over Z_9 x Z_3, point (x, y) being 3x + y, one base quadruple and two base triples (found by search), and
    the cosets of Z_3. A triple has different values under a map to Z_3, so its translates split into three
    partitions; each, and the cosets, take one of seven new points.
    """
    x, y = np.divmod(np.arange(27), 3)

    def translates(*base: int) -> Blocks:
        return develop((9, 3), np.array([base]))[:, 0]

    def joined(triples: Blocks, new: npt.NDArray[np.int64]) -> Blocks:
        return as_classes(np.concatenate([triples, new[:, None]], axis=1))

    blocks = [
        translates(0, 3, 7, 12),
        joined(translates(0, 5, 13), 27 + y),
        joined(translates(0, 6, 16), 30 + (x + 2 * y) % 3),
        joined(as_classes(np.arange(27).reshape(9, 3)), np.full(9, 33)),
    ]
    return [as_classes(np.concatenate(blocks)), as_classes(np.arange(27, 34)[None, :])]


def _punctured_plane(s: int) -> Blocks:
    """Return the affine plane of order s + 1 without a point: lines that lost it are s + 2 rows of s points."""
    lines = affine_geometry(2, s + 1).reshape(-1, s + 1)
    through = (lines == 0).any(axis=1)
    rows = np.array([[p for p in line if p] for line in lines[through]])
    place = np.zeros((s + 1) ** 2, dtype=np.int32)
    place[rows.reshape(-1)] = np.arange(rows.size)
    return as_classes(place[lines[~through]])


def _weighted(blocks: Blocks, s: int, ingredient: Blocks) -> Blocks:
    """Replace every block by the ingredient on its s-fold points."""
    row, place = np.divmod(ingredient, s)
    return as_classes((blocks[:, row] * s + place).reshape(-1, ingredient.shape[1]))


def close(r: int, s: int, balanced: Callable[[], list[Blocks]], template: Callable[[int], Classes]) -> Classes:
    """Return the resolvable design on (s - 1) r + 1 points from a pairwise balanced design on r points.

    Every point becomes s - 1 points and infinity is added; partition x holds the group of infinity and the
    copies of x, and from each block through x what its small design has beside that group.
    """
    width = s - 1
    groups = (width * r + 1) // s
    result = empty(r, groups, s)
    result[:, 0, 0] = width * r
    result[:, 0, 1:] = np.arange(width * r).reshape(r, width)
    filled = np.ones(r, dtype=np.int64)
    for blocks in balanced():
        k = blocks.shape[1]
        owner, copy = np.divmod(standard_form(template(k), s)[:, 1:], width)
        number = np.arange(owner.shape[1])
        for position in range(k):
            members = blocks[np.argsort(blocks[:, position], kind="stable")].astype(np.int32)
            x = members[:, position]
            # blocks through the same x fill its partition one after the other
            rank = np.arange(len(x)) - np.searchsorted(x, x)
            slot = filled[x, None] + rank[:, None] * len(number) + number
            result[x[:, None], slot] = members[:, owner[position]] * width + copy[position]
            filled += np.bincount(x, minlength=r) * len(number)
    return result


def standard_form(classes: Classes, s: int) -> Classes:
    """Renumber: the last point is infinity, and partition x begins with infinity and points x(s-1)...

    Every other group of a partition keeps its order.
    """
    infinity = classes.shape[1] * s - 1
    others_last = np.argsort(~(classes == infinity).any(axis=2), axis=1, kind="stable")
    ordered = np.take_along_axis(classes, others_last[:, :, None], axis=1)
    first = ordered[:, 0]
    place = np.full(infinity + 1, infinity, dtype=np.int32)
    place[first[first != infinity]] = np.arange(infinity)
    return as_classes(place[ordered])
