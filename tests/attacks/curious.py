"""What a curious peer does with the messages of one or more averages, written once for all protocols.

An attacker reads each message of a neighbour as the neighbour's parameters plus a mask, which is true of all protocols
here, and then looks for what the masks leave over.
"""

from __future__ import annotations

import numpy as np

from securedfl.attacks.solving import record
from securedfl.protocols import InsecureSeededDraw
from securedfl.protocols.admm import factors
from securedfl.protocols.fixedpoint import FieldPoint, FixedPoint
from securedfl.protocols.masks import values
from securedfl.protocols.shares.layout import layout_for


def codec_of(averaging):
    """Return how the numbers of an averaging become elements; None for floats."""
    kind = {"reals": None, "ring": FixedPoint, "field": FieldPoint}[averaging.protocol.arithmetic]
    return kind and kind(bits=averaging.options.get("bits"), range=averaging.options.get("range"))


def overhear(averaging, vectors, seed=0):
    """Run one average and return, for each attacker and neighbour, what the neighbour's first message says."""
    taken = record(averaging, vectors, lambda peer: InsecureSeededDraw(seed, peer=peer, round=averaging.round))
    return {attacker: readings(taken.overheard_by([attacker]), averaging, attacker) for attacker in range(len(vectors))}


def readings(held, averaging, attacker):
    """Return what a peer's neighbours sent first, read as parameters plus mask; NaN where nothing was sent."""
    size, codec, n = len(held.average), codec_of(averaging), averaging.n
    received = {message.sender: values(message.array) for message in held.messages if message.step == 0}
    if averaging.protocol.arithmetic == "reals":
        # y^1 = c (w + lam / rho), with c as the vectors' dtype has it
        c = held.average.dtype.type(factors(averaging.options["rho"])[0])
        return {peer: y.astype(np.float64) / float(c) for peer, y in received.items()}

    def numbers(codes):
        # decoding gives the mean of n
        return codec.decode(codes, n, np.empty(0)) * n

    if averaging.protocol.arithmetic == "field":
        # y^1 = 2 (w + u)
        return {peer: numbers(codec.field(held.average).divide(y, 2)) for peer, y in received.items()}
    strength = averaging.options["strength"]
    layout = layout_for(averaging.design, averaging.design.turns(averaging.round, strength), size)
    found = {}
    for peer, first, end in layout.receiving(attacker):
        found[peer] = np.full(size, np.nan)
        found[peer][first:end] = numbers(received[peer])
    return found


def repeated(seen, candidates, width, random):
    """Guess a value that was sent again and again, each time behind a fresh mask between 0 and ``width``.

    The value is one of the candidates: the one that explains most readings, and chance decides among equals.
    """
    offsets = seen[~np.isnan(seen)][:, None] - np.asarray(candidates)
    explained = ((offsets >= 0) & (offsets < width)).sum(axis=0)
    return candidates[random.choice(np.flatnonzero(explained == explained.max()))]


def on_grid(seen, base, grid, rounding):
    """Tell which coordinates differ from a common model by masks alone, which are multiples of a grid."""
    off = (seen - base) / grid
    return np.abs(off - np.rint(off)) * grid <= rounding


def matched_filter(seen, updates):
    """Return which update, of those guessed, a message most likely hides, behind masks around their mean."""
    known = ~np.isnan(seen)
    guesses = np.array(updates)[:, known]
    return int(np.argmax(guesses @ (seen[known] - seen[known].mean()) - (guesses**2).sum(axis=1) / 2))


def told_apart(scores, truth):
    """Return how often a score is higher where something is true than where it is not; 1/2 is chance."""
    true, false = scores[truth][:, None], scores[~truth]
    return float((true > false).mean() + (true == false).mean() / 2)
