"""`Knowledge.sums` against brute force: every set of peers is tried, in fractions, without the audit's own algebra."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import combinations

import numpy as np
import pytest

from securedfl.designs import best
from securedfl.protocols import grouped, paper
from securedfl.protocols.fixedpoint import Symbols
from tests.privacy.audits import audit

PROTOCOLS = {
    "grouped": partial(grouped, codec=Symbols()),
    "paper": partial(paper, rho=Fraction(1, 16), finish="literal"),
}


def received_rows(protocol, n):
    """Run the generators of n peers on unit vectors of fractions; return the rows that each peer received.

    Columns are the peers' parameters, then their masks.
    """

    def unit(column):
        row = np.full((1, 2 * n), Fraction(0))
        row[0, column] = Fraction(1)
        return row

    running = [protocol(me, unit(me), draw=lambda _like, me=me: unit(n + me)) for me in range(n)]
    rows, inboxes = [[] for _ in range(n)], [None] * n
    while True:
        outboxes = []
        for peer, inbox in zip(running, inboxes, strict=True):
            try:
                outboxes.append(next(peer) if inbox is None else peer.send(inbox))
            except StopIteration:
                # all peers take the same number of steps
                return rows
        inboxes = [{} for _ in range(n)]
        for sender, outbox in enumerate(outboxes):
            for receiver, row in outbox.items():
                inboxes[receiver][sender] = row
                rows[receiver].append(row[0])


def echelon(rows):
    """Return rows in echelon form with the column in which each begins."""
    basis = []
    for row in rows:
        left = rest(row, basis)
        if left.any():
            column = int(np.flatnonzero(left)[0])
            basis.append((column, left / left[column]))
    return basis


def rest(row, basis):
    """Return what is left of a row after subtracting multiples of the basis; nothing if it is in its span."""
    left = row.copy()
    for column, known in basis:
        if left[column]:
            left = left - left[column] * known
    return left


def brute_force(rows, coalition, n):
    """Return the smallest sets of honest peers whose sum is computable, but single peers and all."""
    honest = [peer for peer in range(n) if peer not in coalition]
    # the coalition knows its own parameters and masks
    columns = honest + [n + peer for peer in honest]

    def total(peers):
        return np.array([Fraction(column in peers) for column in columns])

    basis = echelon([row[columns] for member in coalition for row in rows[member]] + [total(honest)])
    smallest = []
    for size in range(1, len(honest) + 1):
        for peers in combinations(honest, size):
            if not any(set(known) <= set(peers) for known in smallest) and not rest(total(peers), basis).any():
                smallest.append(peers)
    return tuple(sorted(peers for peers in smallest if 1 < len(peers) < len(honest)))


def test_seven_peers_in_pairs():
    """A case in which (0, 1) and (2, 5) take combinations of several rows of a reduced basis."""
    found = audit("grouped", best(7, 2, 0), {"iterations": 3}, shortcut=False).learns((3,))
    assert found.sums == ((0, 1), (0, 2, 4), (1, 5, 6), (2, 5), (4, 6))


@pytest.mark.parametrize("protocol", ["grouped", "paper"])
@pytest.mark.parametrize(("n", "size"), [(5, 2), (6, 2), (6, 3), (7, 2), (7, 3), (8, 3)])
def test_all_computable_sums_are_found(protocol, n, size):
    """All coalitions of one and two peers, and two to four iterations; what is found is what there is."""
    design, several = best(n, size, 0), 0
    for iterations in (2, 3, 4):
        rows = received_rows(partial(PROTOCOLS[protocol], design=design, iterations=iterations), n)
        view = audit(protocol, design, {"iterations": iterations}, shortcut=False).view()
        for coalition in [c for members in (1, 2) for c in combinations(range(n), members)]:
            expected = brute_force(rows, coalition, n)
            assert view.knowledge(coalition).sums == expected, (iterations, coalition)
            several += len(expected)
    # so many that the comparison says something
    assert several > 5
