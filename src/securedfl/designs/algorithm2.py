"""The paper's Algorithm 2: sample groups of peers who have not met, until a whole partition is found."""

from __future__ import annotations

import random
from collections.abc import Sequence

from securedfl.designs.design import Design
from securedfl.designs.sizes import group_sizes, upper_bound

PATIENCE = 10
"""Failed samples in a row after which a partial partition is given up."""


def randomized(n: int, s: int = 3, seed: int = 0, *, trials: int | None = None, restarts: int = 1000) -> Design:
    """Build a design by Algorithm 2 with s-cliques.

    A sample draws one peer after the other from those that are not yet in the partition and have met nobody
    of the sample: the samples that Algorithm 2 would draw and reject are not drawn. A sample that runs dry is
    a failed trial.

    Where ``s`` does not divide ``n``, each partition has the sizes of `group_sizes` (groups of ``s`` and
    ``s - 1``), the larger groups sampled first.

    Parameters
    ----------
    n, s, seed
        Peers, group size, and what makes the run reproducible (on every platform and Python version).
    trials
        Stopping rule: the most samples in all; by default ``50000 + 500 n``.
    restarts
        Stopping rule: how often one partition may be given up (its groups are returned to the graph) after
        `PATIENCE` failed samples in a row, before the search ends.
    """
    sizes = group_sizes(n, s)
    limit = 50_000 + 500 * n if trials is None else trials
    partitions = _sample(n, sizes, random.Random(seed), limit, restarts, upper_bound(sizes))
    return Design.from_partitions(partitions, peers=n, method="randomized (Algorithm 2)")


def _sample(
    n: int, sizes: Sequence[int], source: random.Random, trials: int, restarts: int, bound: int
) -> list[list[list[int]]]:
    """Return Pi; the names are the paper's, and sets of peers are the bits of a number."""
    everyone = (1 << n) - 1
    # G[p]: whom peer p may still meet; whole: the same when the last partition was found
    G = [everyone & ~(1 << p) for p in range(n)]
    whole = list(G)
    Pi: list[list[list[int]]] = []
    pi: list[list[int]] = []
    N, failures, given_up = everyone, 0, 0
    # The first partition always succeeds (all peers are strangers), so the result is never empty.
    while len(Pi) < bound and (trials > 0 or not Pi):
        trials -= 1
        Q = _clique(N, G, sizes[len(pi)], source)
        if Q is None:
            failures += 1
            if failures == PATIENCE:
                # pi is given up: its edges return to G
                G, pi, N, failures = list(whole), [], everyone, 0
                given_up += 1
                if given_up >= restarts:
                    break
            continue
        failures, members = 0, sum(1 << p for p in Q)
        pi.append(Q)
        N &= ~members
        for p in Q:
            G[p] &= ~members
        if not N:
            # a partition is found
            Pi.append(pi)
            whole, pi, N, given_up = list(G), [], everyone, 0
    return Pi


def _clique(N: int, G: Sequence[int], size: int, source: random.Random) -> list[int] | None:
    """Draw peers of N one by one who are all neighbours in G; None when nobody is left."""
    Q: list[int] = []
    while len(Q) < size:
        if not N:
            return None
        p = _nth_set_bit(N, int(source.random() * N.bit_count()))
        Q.append(p)
        N &= G[p]
    return Q


def _nth_set_bit(bits: int, index: int) -> int:
    for _ in range(index):
        bits &= bits - 1
    return (bits & -bits).bit_length() - 1
