"""The attack on bounded masks: over many rounds, intervals for a parameter that hardly moves are intersected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from securedfl.attacks.solving import Overheard, record
from securedfl.designs import Design
from securedfl.protocols.admm import factors, paper
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.steps import Array, Draw


@dataclass(frozen=True, eq=False)
class Narrowing:
    """How an attacker's interval for one peer's parameters shrinks.

    Attributes
    ----------
    messages
        How many messages of the victim the attacker had seen after each round.
    widths
        The average width of the intervals after each round.
    errors
        The average distance of the interval's middle from the truth of that round, judged by the truth.
    """

    messages: tuple[int, ...]
    widths: tuple[float, ...]
    errors: tuple[float, ...]


def interval(
    overheard: Overheard, design: Design, victim: int, *, rho: float, round: int
) -> tuple[Array, Array] | None:
    """Return the bounds that the first of two messages leaves for the victim's parameters; None if there is none.

    y^1 = c (w + lam/rho) and y^2 = c (w + y^1) + (q - c) z^1 with lam in [0, 1), where z^1 is public.
    """
    c, q = factors(rho)
    turns = design.turns(round, 2)
    for i, at in enumerate(turns):
        if design.group(victim, at) != design.group(overheard.coalition[0], at):
            continue
        step = sum(1 + (len(design.partition(before)) > 1) for before in turns[:i])
        y = next(m.array for m in overheard.messages if m.sender == victim and m.step == step).astype(np.float64)
        if i == 0:
            top = y / c
            return top - 1 / rho, top
        z = consensus(overheard, design, rho=rho, at=turns[0])
        top = (y - (q - c) * z) / (c * (1 + c))
        return top - c / (1 + c) / rho, top
    return None


def consensus(overheard: Overheard, design: Design, *, rho: float, at: int) -> Array:
    """Return z^1 as a member of the coalition computes it: from its group's messages and the other groups' sums."""
    me = overheard.coalition[0]
    c, _ = factors(rho)
    own = c * (overheard.parameters[me].astype(np.float64) + overheard.draws[me][0].astype(np.float64) / rho)
    mates = [m.array for m in overheard.messages if m.receiver == me and m.step == 0]
    z = (own + sum(array.astype(np.float64) for array in mates)) / design.n
    if len(design.partition(at)) > 1:
        senders = {}
        for message in overheard.messages:
            if message.receiver == me and message.step == 1:
                senders[design.group(message.sender, at)] = message.array
        z = z + sum(array.astype(np.float64) for array in senders.values())
    return np.asarray(z)


def narrow(
    parameters: Callable[[int], Sequence[Array]],
    design: Design,
    *,
    rounds: int,
    rho: float,
    attacker: int = 0,
    rotate: bool = True,
    drift: float = 0.0,
    draw: Callable[[int, int], Draw] = lambda _peer, _round: secret_uniform,
) -> Narrowing:
    """Average over many rounds and intersect what one attacker learns about a neighbour of the first partition.

    Parameters
    ----------
    parameters
        Gives all peers' vectors in a round.
    design, rho
        As the federation has them; two iterations.
    rounds
        How many averages.
    attacker
        Which peer attacks.
    rotate
        Whether partitions go on with the rounds, or are the same in every round.
    drift
        How far a parameter may move in a round, as the attacker assumes: old intervals are widened by it.
    draw
        Gives the source of masks for a peer and a round.
    """
    victim = next(u for u in design.group(attacker, 0) if u != attacker)
    low, high = np.array(-np.inf), np.array(np.inf)
    seen, messages, widths, errors = 0, [], [], []
    for r in range(rounds):
        vectors = parameters(r)
        used = r if rotate else 0
        protocol = partial(paper, design=design, rho=rho, iterations=2, round=used)
        taken = record(protocol, vectors, [draw(peer, r) for peer in range(design.n)].__getitem__)
        found = interval(taken.overheard_by([attacker]), design, victim, rho=rho, round=used)
        low, high = low - drift, high + drift
        if found is not None:
            seen += 1
            low, high = np.maximum(low, found[0]), np.minimum(high, found[1])
        messages.append(seen)
        widths.append(float(np.maximum(high - low, 0).mean()))
        errors.append(float(np.abs((high + low) / 2 - vectors[victim]).mean()) if seen else math.inf)
    return Narrowing(tuple(messages), tuple(widths), tuple(errors))
