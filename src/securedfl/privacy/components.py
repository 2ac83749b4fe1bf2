"""The fast path: what coalitions learn from shares or from two iterations, by connected components.

Both protocols reveal the same (docs/privacy.md): let two honest peers be joined if, in one of the partitions used,
they share a group without a member of the coalition. The coalition learns the sums over the connected components and
nothing else. Tests compare this with the audit of the code itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from securedfl.privacy.symbolic.view import Knowledge

Labels = npt.NDArray[np.integer]
Components = npt.NDArray[np.integer]


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
    Union-find for all coalitions in one array, by repeated minima over groups and by jumping to the parent's parent.
    Peers lie along the first axis, so that every operation runs over contiguous coalitions.
    """
    n, count = labels.shape[1], len(coalitions)
    kind = np.int16 if n < 1 << 15 else np.int32
    parent = np.repeat(np.arange(n, dtype=kind)[:, None], count, axis=1)
    partitions = [_tables(row, coalitions) for row in labels]
    while True:
        before = parent
        for members, group, watched in partitions:
            least = parent[members[0]]
            for others in members[1:]:
                np.minimum(least, parent[others], out=least)
            parent = np.where(watched, parent, least[group])
        parent = np.take_along_axis(parent, parent.astype(np.intp), axis=0)
        if np.array_equal(parent, before):
            return np.ascontiguousarray(parent.T)


def _tables(
    row: npt.NDArray[np.integer], coalitions: npt.NDArray[np.integer]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Return the k-th member of every group (the first again if there is none), everybody's group, who is watched."""
    group = np.unique(row, return_inverse=True)[1].reshape(-1)
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    starts = np.cumsum(sizes) - sizes
    places = np.arange(sizes.max())[:, None]
    members = order[starts + np.where(places < sizes, places, 0)]
    seen = np.zeros((len(sizes), len(coalitions)), dtype=bool)
    np.put_along_axis(seen, group[coalitions].T, values=True, axis=0)
    return members, group, seen[group]


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
    """Return what one coalition learns from the partitions used, as `securedfl.privacy.symbolic.view.View` would."""
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
