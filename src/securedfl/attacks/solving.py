"""Attacks on real numbers: what a coalition makes of the messages that it received.

An attacker uses what a coalition has and no more: the messages that its members received (from a recorded
transcript), their own parameters and masks, the result, and the public protocol, design and options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from securedfl.errors import PrivacyError
from securedfl.privacy.symbolic.algebra import Coefficients
from securedfl.privacy.symbolic.view import symbolic
from securedfl.protocols.masks import mask, values
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.steps import Array, Draw, PeerProtocol
from securedfl.simulation import Message, Outcome, run

RESIDUAL = 1e-6
"""How far from a unit vector a combination of messages may be for the attacker to believe in it."""


@dataclass(frozen=True, eq=False)
class Overheard:
    """What a coalition holds after an average."""

    coalition: tuple[int, ...]
    messages: tuple[Message, ...]
    parameters: Mapping[int, Array]
    draws: Mapping[int, tuple[Array, ...]]
    average: Array


@dataclass(frozen=True, eq=False)
class Recording:
    """An average that really ran, with everything that was sent; `held_by` gives an attacker its part."""

    outcome: Outcome
    vectors: tuple[Array, ...]
    draws: tuple[tuple[Array, ...], ...]

    def overheard_by(self, coalition: Iterable[int]) -> Overheard:
        """Return what the members of a coalition hold, and nothing of the others."""
        members = tuple(sorted(set(coalition)))
        transcript = self.outcome.transcript
        if transcript is None or not members:
            raise PrivacyError("an attack needs a recorded transcript and at least one member")
        return Overheard(
            coalition=members,
            messages=tuple(transcript.received_by(members)),
            parameters={member: self.vectors[member] for member in members},
            draws={member: self.draws[member] for member in members},
            average=self.outcome.average,
        )


def record(protocol: PeerProtocol, vectors: Sequence[Array], draw: Callable[[int], Draw] | None = None) -> Recording:
    """Run an average in memory and record it; ``draw`` gives each peer's source of masks."""
    source = draw or (lambda _peer: secret_uniform)
    kept: list[list[Array]] = [[] for _ in vectors]

    def draws(peer: int, _offset: int) -> Draw:
        inner = source(peer)

        def noted(like: Array) -> Array:
            drawn = np.array(values(mask(inner, like)))
            kept[peer].append(drawn)
            return drawn.copy()

        return noted

    # one chunk, so that the draws of a peer come in the order of the protocol
    outcome = run(protocol, vectors, draws=draws, chunk=max(len(vectors[0]), 1), threads=1, record=True)
    return Recording(outcome, tuple(vectors), tuple(tuple(drawn) for drawn in kept))


@dataclass(frozen=True, eq=False)
class Loot:
    """What an attack yields.

    Attributes
    ----------
    estimates
        The best guess at each honest peer's parameters.
    claimed
        The peers for whom a combination of messages gives the parameters, so that the guess is no guess.
    expected_error
        For each claimed peer, the order of magnitude of the estimate's error, as the attacker can tell: rounding of
        the messages, or by how much messages contradict each other, times how much the combination magnifies it.
    condition
        Largest over smallest singular value of the system that was solved.
    """

    estimates: Mapping[int, Array]
    claimed: tuple[int, ...]
    expected_error: Mapping[int, float]
    condition: float


def solve(overheard: Overheard, protocol: PeerProtocol, n: int) -> Loot:
    """Solve the whole linear system of everything that the coalition received, group sums included.

    The coefficients come from running the public protocol on symbols with float64 coefficients; that is what an
    attacker would do, and it is independent of the audit's exact arithmetic. For protocols over the real numbers that
    treat all coordinates alike.
    """
    rows, right_sides, size = _system(overheard, protocol, n)
    left, singular, right = np.linalg.svd(rows, full_matrices=False)
    rank = int((singular > singular[0] * max(rows.shape) * np.finfo(np.float64).eps * 16).sum())
    left, singular, right = left[:, :rank], singular[:rank], right[:rank]
    honest = [peer for peer in range(n) if peer not in overheard.coalition]
    masks = rows.shape[1] - len(honest)
    precision = float(np.finfo(overheard.average.dtype).eps)
    contradiction = np.abs(right_sides - left @ (left.T @ right_sides)).max(axis=1)

    estimates, claimed, errors = {}, [], {}
    for k, peer in enumerate(honest):
        unit = right[:, masks + k]
        weights = left @ (unit / singular)
        residual = right.T @ unit
        residual[masks + k] -= 1
        estimates[peer] = weights @ right_sides
        if np.abs(residual).max() < RESIDUAL:
            claimed.append(peer)
            errors[peer] = float(np.abs(weights) @ np.maximum(size * precision, contradiction))
    return Loot(estimates, tuple(claimed), errors, float(singular[0] / singular[-1]))


def recovered(loot: Loot, vectors: Sequence[Array], *, tolerance: float = 0.01) -> tuple[int, ...]:
    """Return the peers whose estimate is right, judged by the truth: off by less than a part of its spread."""
    right = []
    for peer, estimate in loot.estimates.items():
        truth = vectors[peer].astype(np.float64)
        known = ~np.isnan(estimate)
        spread = float(truth.std()) or 1.0
        if known.any() and float(np.abs(estimate - truth)[known].max()) <= tolerance * spread:
            right.append(peer)
    return tuple(right)


def max_error(loot: Loot, vectors: Sequence[Array], peers: Iterable[int]) -> float | None:
    """Return the largest error over some peers; None for nobody."""
    errors = [float(np.nanmax(np.abs(loot.estimates[peer] - vectors[peer]))) for peer in peers]
    return max(errors, default=None)


class Reals(Coefficients):
    """Coefficients in float64, as an attacker calculates."""

    dtype = np.float64

    def element(self, value: Fraction) -> float:
        """Return the nearest float."""
        return float(value)


def _system(overheard: Overheard, protocol: PeerProtocol, n: int) -> tuple[Array, Array, Array]:
    """Return the equations in the honest peers' masks and parameters (in this order), and their right-hand sides.

    The third is how large the numbers were of which each right-hand side was rounded: a message as it was sent, before
    what the coalition knows of it is taken away; and for the average the largest message, because it is their sum.
    """
    owners, steps = symbolic(protocol, n, 1, Reals())
    owner = np.asarray(owners)
    known: dict[int, Array] = {0: np.ones_like(overheard.average, dtype=np.float64)}
    for member in overheard.coalition:
        symbols = np.flatnonzero(owner == member)
        own = [overheard.parameters[member], *overheard.draws[member]]
        if len(own) != len(symbols):
            raise PrivacyError("the recorded draws do not fit the protocol; this attack is for element-wise protocols")
        known |= dict(zip(symbols.tolist(), own, strict=True))

    rows, right_sides = [], []
    for message in overheard.messages:
        if message.sender in overheard.coalition:
            continue
        rows.append(steps[message.step][message.receiver][message.sender][0].padded(len(owners)))
        right_sides.append(np.asarray(message.array, dtype=np.float64))
    mean = np.zeros(len(owners))
    mean[1 : 1 + n] = 1 / n
    table, right = np.array([*rows, mean]), np.array([*right_sides, overheard.average.astype(np.float64)])
    size = np.abs(right).max(axis=1)
    size[-1] = size.max()
    for symbol, value in known.items():
        right -= np.multiply.outer(table[:, symbol], np.asarray(value, dtype=np.float64))
    unknown = [s for s in range(1 + n, len(owners)) if s not in known] + [s for s in range(1, 1 + n) if s not in known]
    table = table[:, unknown]
    # equal rows say the same, and rows of nothing say nothing: fewer rows, better conditioned
    _, first = np.unique(table.round(12), axis=0, return_index=True)
    first = np.sort(first[np.abs(table[first]).max(axis=1) > 0])
    scale = np.abs(table[first]).max(axis=1)
    return table[first] / scale[:, None], right[first] / scale[:, None], size[first] / scale
