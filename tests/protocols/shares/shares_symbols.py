"""Brute force over symbols, independent of securedfl.privacy: what a coalition can compute, over GF(2).

Every parameter and mask is a symbol and every message a set of symbols, kept as the bits of a Python integer. The
systems are incidence matrices of bipartite graphs (shares against owners), hence totally unimodular, so that their
rank over GF(2) is the rank over the integers; `test_gf2_is_enough` checks it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from securedfl.protocols import Symbols, by_name
from securedfl.simulation import run


class SymbolDraw:
    """Fresh symbols from a counter that all peers share; notes whose they are."""

    def __init__(self, owners: list[int], peer: int) -> None:
        self.owners, self.peer = owners, peer

    def __call__(self, like):
        rows, first = len(like), len(self.owners)
        self.owners.extend([self.peer] * rows)
        drawn = np.zeros_like(like)
        drawn[np.arange(rows), first + np.arange(rows)] = 1
        return drawn


@dataclass
class Row:
    step: int
    sender: int
    receiver: int
    bits: int
    coefficients: np.ndarray


class SymbolicRun:
    """One average on symbols. Symbol u * size + k is coordinate k of peer u; masks follow."""

    def __init__(self, protocol, n, size, *, design, masks=4000, faults=(), round=0, **options):
        self.n, self.size = n, size
        width = n * size + masks
        self.owners = [u for u in range(n) for _ in range(size)]
        vectors = []
        for u in range(n):
            w = np.zeros((size, width), dtype=np.int8)
            w[np.arange(size), u * size + np.arange(size)] = 1
            vectors.append(w)
        self.outcome = run(
            by_name(protocol).on(design, codec=Symbols(), **options).at(round),
            vectors,
            draws=lambda peer, _: SymbolDraw(self.owners, peer),
            record=True,
            faults=faults,
        )
        assert len(self.owners) <= width
        rows = [
            Row(message.step, message.sender, message.receiver, to_int(values), values.astype(np.int64))
            for message in self.outcome.transcript
            if message.array.ndim == 2
            for values in message.array
        ]
        self.at = self._by_coordinate(rows)
        self.symbols_of = [0] * n
        for a, owner in enumerate(self.owners):
            self.symbols_of[owner] |= 1 << a

    def _by_coordinate(self, rows):
        """Split rows by coordinate: no message may connect two of them, because the arithmetic is element-wise."""
        parent = list(range(len(self.owners)))

        def find(a):
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            return a

        symbols = [np.flatnonzero(row.coefficients).tolist() for row in rows]
        for used in symbols:
            for other in used[1:]:
                parent[find(used[0])] = find(other)
        for k in range(self.size):
            for u in range(1, self.n):
                parent[find(k)] = find(u * self.size + k)
        name = {find(k): k for k in range(self.size)}
        assert len(name) == self.size, "a message mixes coordinates"
        found = defaultdict(list)
        for row, used in zip(rows, symbols, strict=True):
            if used:
                place = find(used[0])
                if place in name:  # else a mask that met nothing: it tells nothing
                    found[name[place]].append(row)
        return found

    def learned(self, coalition, k, *, sees=None):
        """Return a reduced basis of what the coalition can compute, as bit sets of honest peers, and the total."""
        members = set(coalition)
        sees = sees or (lambda row: row.receiver in members)
        known = sum(self.symbols_of[u] for u in members)
        parameter = {u * self.size + k: u for u in range(self.n)}
        masks_first = (1 << (self.n * self.size)) - 1  # parameters are the low bits, so masks are eliminated first
        rows = eliminate([row.bits & ~known for row in self.at[k] if sees(row)])
        free = [row for row in rows if row <= masks_first]
        return eliminate([sum(1 << parameter[a] for a in bits_of(row)) for row in free])


def to_int(values):
    return int.from_bytes(np.packbits(np.abs(values) % 2, bitorder="little").tobytes(), "little")


def bits_of(number):
    return [a for a in range(number.bit_length()) if number >> a & 1]


def eliminate(rows):
    """Return the reduced echelon form over GF(2): equal spaces have equal results."""
    basis: dict[int, int] = {}
    for row in rows:
        while row:
            top = row.bit_length() - 1
            if top not in basis:
                basis[top] = row
                break
            row ^= basis[top]
    for top in sorted(basis):
        for other in basis:
            if other > top and basis[other] >> top & 1:
                basis[other] ^= basis[top]
    return sorted(basis.values())


def span_of(sets):
    """Return the reduced basis of the sums over these sets of peers."""
    return eliminate([sum(1 << u for u in peers) for peers in sets])


def joined(n, coalition, edges):
    """Return the connected components of the honest peers."""
    honest = [u for u in range(n) if u not in coalition]
    label = {u: u for u in honest}
    for a, b in edges:
        if a in label and b in label and label[a] != label[b]:
            old, new = label[a], label[b]
            label = {u: new if v == old else v for u, v in label.items()}
    return [[u for u in honest if label[u] == name] for name in dict.fromkeys(label.values())]
