"""The best known design for a number of peers and a group size: constructions, and search where they are weak."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import lru_cache

import numpy as np

from securedfl import storage
from securedfl.designs.constructions.catalogue import construction
from securedfl.designs.constructions.construction import delete, labels_of
from securedfl.designs.constructions.difference_matrices import partial_transversal
from securedfl.designs.constructions.transversal import row_limit, transversal
from securedfl.designs.design import Design
from securedfl.designs.local_search import local_search
from securedfl.designs.sizes import check, group_sizes, upper_bound
from securedfl.errors import DesignError

SEARCH_UP_TO, FEW = 320, 50
"""Peers up to which local search competes with a construction that is far from the bound, and with any below it."""

KEPT_FROM, KEPT_VERSION = 2000, 2
"""Peers from which designs are kept in files: smaller ones are built faster than they are read and checked. The version
is part of the file's name; raise it when a construction changes what it returns."""


def best(n: int, s: int = 3, seed: int = 0) -> Design:
    """Return the known design with the most partitions, verified.

    Groups have ``s`` peers, or ``s`` and ``s - 1`` where ``s`` does not divide ``n`` (see `group_sizes` for the
    few peers that allow neither). With ``s = 2`` and an odd number of peers, one sits out in each partition: a
    group of one, which the method mentions.

    Parameters
    ----------
    n, s
        Peers and group size.
    seed
        Relabels the peers: other seeds give other designs, equally good. A design is a function of ``(n, s,
        seed)``, the same on every machine.
    """
    check(n, s)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise DesignError(f"the seed must be a whole number, not {seed!r}")
    return _recalled(n, s, seed) if n >= KEPT_FROM else _relabelled(_searched(n, s), seed)


def _recalled(n: int, s: int, seed: int) -> Design:
    """Return the design from the user's cache folder; a file that is missing or damaged is made again."""
    path = storage.cache_folder() / f"design-v{KEPT_VERSION}-{n}-{s}-{seed}.npz"
    stored = storage.recall(path) or {}
    # what is wrong about another file's content; `DesignError` is a `ValueError`
    with suppress(KeyError, ValueError, TypeError):
        known = Design(stored["labels"], method=str(stored["method"]))
        if known.hash == str(stored["hash"]) and known.n == n:
            known.verify()
            return known
    design = _relabelled(_searched(n, s), seed)
    about = {"method": np.array(design.method), "hash": np.array(design.hash)}
    storage.remember(path, {"labels": design.labels, **about})
    return design


def _relabelled(found: Design, seed: int) -> Design:
    """Give the peers other names: in the order of SHA-256 digests, so that no generator can change it."""
    keys = [hashlib.sha256(f"securedfl relabel {seed} {p}".encode()).digest() for p in range(found.n)]
    order = sorted(range(found.n), key=keys.__getitem__)
    design = Design(found.labels[:, order], method=found.method)
    design.verify()
    return design


@lru_cache(maxsize=16)
def _searched(n: int, s: int) -> Design:
    """Return the best construction, or what local search finds if that is better."""
    found = _constructed(n, s)
    bound = upper_bound(group_sizes(n, s))
    v = -(-n // s)
    if found.gap < min(v, bound) and row_limit(v) < s <= v:
        labels = labels_of(partial_transversal(s, v))[:, :n]
        partial = Design(labels, method=f"partial transversal design of order {v} found by search")
        found = max(found, partial, key=lambda design: design.gap)
    if found.gap >= bound or n > SEARCH_UP_TO or (n > FEW and found.gap > 0.75 * bound):
        return found
    for attempt in range(8 if n <= 20 else 2 if n <= FEW else 1):
        # Many peers have many partitions to find, so each gets fewer steps.
        steps = 1000 if n <= 3 * FEW else 250
        found = max(found, local_search(n, s, attempt, steps=steps), key=lambda design: design.gap)
        if found.gap >= bound:
            break
    return found


def constructed(n: int, s: int = 3, seed: int = 0) -> Design:
    """Return the verified design of the best construction, without any search."""
    check(n, s)
    return _relabelled(_constructed(n, s), seed)


def _constructed(n: int, s: int) -> Design:
    sizes = group_sizes(n, s)
    if len(sizes) < max(sizes):
        single = np.repeat(np.arange(len(sizes)), sizes)[None, :]
        return Design(single, method="a single partition: with so few groups a second one does not exist")
    groups = -(-n // s)
    missing = groups * s - n
    chosen = construction(groups * s, s)
    wide = _widest(n, s) if missing else 0
    if wide > chosen.gap:
        labels = labels_of(transversal(s, wide))[:, :n]
        return Design(labels, method=f"transversal design RTD({s},{wide}), last row cut to {n - (s - 1) * wide}")
    labels = delete(labels_of(chosen.build()), missing)
    method = chosen.method
    if missing:
        sits_out = "; one peer sits out in each partition" if s == 2 else ""
        method = f"{method}, {missing} point{'s' * (missing > 1)} deleted{sits_out}"
    return Design(labels, method=method)


def _widest(n: int, s: int) -> int:
    """Return the largest v for which RTD(s, v) with a shortened last row has n points, or 0.

    At least half of the groups shall have s peers: who asks for groups of s does not want nearly all of s - 1.
    """
    for v in range(2 * n // (2 * s - 1), -(-n // s) - 1, -1):
        if row_limit(v) >= s and v >= s:
            return v
    return 0
