"""The fast path: what coalitions learn from shares or from two iterations, by connected components.

Both protocols reveal the same (docs/privacy.md): let two honest peers be joined if, in one of the partitions used,
they share a group without a member of the coalition. The coalition learns the sums over the connected components and
nothing else. Tests compare this with the audit of the code itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from securedfl.privacy.audit import Knowledge

Labels = npt.NDArray[np.integer]
Components = npt.NDArray[np.int32]


def components(labels: Labels, coalitions: npt.NDArray[np.integer]) -> Components:
    """Return the component of every peer, named by its smallest member, for many coalitions at once.

    Parameters
    ----------
    labels
        ``labels[i, p]``: the group of peer ``p`` in the i-th partition that is used.
    coalitions
        One coalition per row. Members form components of their own.

    Notes
    -----
    Union-find by repeated minima over groups, for all coalitions in one array: each sweep at least halves the
    number of components that are still to be joined along a path.
    """
    n = labels.shape[1]
    count = len(coalitions)
    parent = np.tile(np.arange(n, dtype=np.int32), (count, 1))
    partitions = []
    for row in labels:
        order = np.argsort(row, kind="stable")
        starts = np.flatnonzero(np.diff(row[order], prepend=-1))
        place = np.cumsum(np.diff(row[order], prepend=row[order[0]]) != 0)
        group = np.empty(n, dtype=np.int64)
        group[order] = place
        seen = np.zeros((count, len(starts)), dtype=bool)
        np.put_along_axis(seen, group[coalitions], values=True, axis=1)
        partitions.append((order, starts, group, seen[:, group]))
    while True:
        before = parent
        for order, starts, group, watched in partitions:
            least = np.minimum.reduceat(parent[:, order], starts, axis=1)[:, group]
            parent = np.where(watched, parent, least)
        parent = np.take_along_axis(parent, parent, axis=1)
        if np.array_equal(parent, before):
            return parent


def levels(
    found: Components, coalitions: npt.NDArray[np.integer]
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """Return per coalition and peer 0 (only the total), 1 (in a smaller sum) or 2 (exposed); and the dimension."""
    count, n = found.shape
    flat = (found + n * np.arange(count)[:, None]).ravel()
    sizes = np.bincount(flat, minlength=count * n).reshape(count, n)
    honest = n - coalitions.shape[1]
    number = (sizes > 0).sum(axis=1) - coalitions.shape[1]
    own = np.take_along_axis(sizes, found, axis=1)
    level = np.where(own == 1, 2, np.where(own < honest, 1, 0)).astype(np.int8)
    np.put_along_axis(level, coalitions, 0, axis=1)
    return level, number - 1


def knowledge(labels: Labels, coalition: Iterable[int]) -> Knowledge:
    """Return what one coalition learns from the partitions used, as `securedfl.privacy.audit.View` would."""
    members = tuple(sorted({int(member) for member in coalition}))
    found = components(labels, np.array([members]))[0]
    sets: dict[int, list[int]] = {}
    for peer, name in enumerate(found.tolist()):
        if peer not in members:
            sets.setdefault(name, []).append(peer)
    honest = labels.shape[1] - len(members)
    return Knowledge(
        coalition=members,
        exposed=tuple(sorted(peers[0] for peers in sets.values() if len(peers) == 1)),
        sums=tuple(sorted(tuple(peers) for peers in sets.values() if 1 < len(peers) < honest)),
        dimension=len(sets) - 1,
    )
