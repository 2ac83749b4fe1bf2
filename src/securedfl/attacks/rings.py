"""The attack behind perfect masks: a coalition solves its messages in the protocol's own ring or field."""

from __future__ import annotations

import numpy as np

from securedfl.attacks.solving import Loot, Overheard
from securedfl.privacy.symbolic.algebra import Ring, eliminate, reduce
from securedfl.privacy.symbolic.view import symbolic
from securedfl.protocols.fixedpoint import FieldPoint, FixedPoint
from securedfl.protocols.masks import values
from securedfl.protocols.steps import Array, PeerProtocol


def solve_ring(overheard: Overheard, protocol: PeerProtocol, n: int, codec: FixedPoint, ring: Ring) -> Loot:
    """Recover every coordinate that the messages of an average determine.

    Parameters
    ----------
    overheard
        What the coalition holds; the average must be of a small number of coordinates, because each is solved for.
    protocol
        The public protocol with a codec that passes symbols through.
    n
        The number of peers.
    codec, ring
        How numbers became elements, and of what.

    Returns
    -------
    Loot
        Estimates are NaN at the coordinates that stay hidden. What is recovered is exact, so the expected error is
        that of the encoding.
    """
    coordinates = len(overheard.average)
    owners, steps = symbolic(protocol, n, coordinates, ring)
    owner = np.asarray(owners)
    known = np.zeros(len(owners), dtype=ring.dtype)
    known[0] = 1
    for member in overheard.coalition:
        known[owner == member] = np.concatenate(_own(overheard, member, n, codec)).astype(ring.dtype)

    table, right = [], []
    for message in overheard.messages:
        array = values(message.array)
        if message.sender in overheard.coalition or array.dtype.kind != "u":
            continue  # decoded totals are what everybody learns
        for form, value in zip(steps[message.step][message.receiver][message.sender], array.flat, strict=True):
            table.append(row := form.padded(len(owners)))
            right.append((int(value) - sum(map(int, ring.multiply(row, known)))) % ring.modulus)
    mine = np.isin(owner, [-1, *overheard.coalition])
    params = np.arange(1, 1 + n * coordinates)
    masks = np.setdiff1d(np.flatnonzero(~mine), params)
    honest = params[~mine[params]]
    rows = np.array(table, dtype=ring.dtype).reshape(-1, len(owners))
    system = np.column_stack([rows[:, masks], rows[:, honest], np.array(right, dtype=ring.dtype)])
    solved = reduce(eliminate(system, len(masks), ring), ring, width=len(honest))
    return _loot(overheard, solved, honest - 1, n, codec)


def _own(overheard: Overheard, member: int, n: int, codec: FixedPoint) -> list[Array]:
    """Return the elements that a member of the coalition started with: its parameters and masks."""
    w, drawn = overheard.parameters[member], overheard.draws[member]
    codes = codec.encode(w, n)
    if not isinstance(codec, FieldPoint):
        return [codes, *drawn]
    again = iter(drawn)
    return [codes, codec.field(w).uniform(lambda _like: next(again).copy(), codes)]


def _loot(overheard: Overheard, solved: Array, places: Array, n: int, codec: FixedPoint) -> Loot:
    coordinates = len(overheard.average)
    estimates = {peer: np.full(coordinates, np.nan) for peer in range(n) if peer not in overheard.coalition}
    word = f"u{codec.width(overheard.average) // 8}"
    for row in solved[(solved[:, :-1] != 0).sum(axis=1) == 1]:
        place = int(places[np.flatnonzero(row[:-1])[0]])
        code = np.array([row[-1]]).astype(word)
        value = codec.decode(code, n, np.empty(0, dtype=np.float64))[0] * n  # decoding divides by n
        estimates[place // coordinates][place % coordinates] = value
    claimed = tuple(peer for peer, estimate in estimates.items() if not np.isnan(estimate).all())
    return Loot(estimates, claimed, dict.fromkeys(claimed, codec.step(overheard.average, n) / 2), 1.0)
