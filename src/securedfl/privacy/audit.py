"""The audit of an averaging: what coalitions learn from it, computed from the code that runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.designs.coalition_search import (
    EXPOSED,
    PARTIAL,
    TOTAL,
    Coalitions,
    Evaluate,
    Exposure,
    Labels,
    Levels,
    exposure,
    worst_of,
)
from securedfl.designs.coalitions import Extent, components, evaluate, extent, first_and_spread
from securedfl.privacy.certificate import UNION, Certificate
from securedfl.privacy.symbolic.algebra import PrimeField, Ring, TwoAdic
from securedfl.privacy.symbolic.forms import exactly
from securedfl.privacy.symbolic.view import Knowledge, View, observe
from securedfl.protocols.field import PRIMES
from securedfl.protocols.protocol import Averaging
from securedfl.protocols.steps import Options, PeerProtocol

LIMIT, EFFORT, WORK = 20_000, 900, 150
"""How many coalitions are examined on symbols: all up to the limit, else about as many as the effort; and in how many
rounds: peers times rounds up to the work."""


@dataclass(frozen=True, eq=False)
class Audit:
    """What coalitions learn from an averaging.

    Parameters
    ----------
    averaging
        What is audited: the very object that drivers run.
    shortcut
        Whether connected components may stand for the code where they say all (tests prove them equal).
    """

    averaging: Averaging
    shortcut: bool = True

    @property
    def n(self) -> int:
        """The number of peers."""
        return self.averaging.n

    @property
    def joined(self) -> bool:
        """Whether connected components are used."""
        return self.shortcut and self.averaging.settled.joined

    @property
    def places(self) -> int:
        """How many parameters it runs on: enough to tell slices apart."""
        return math.lcm(self.n, *self.averaging.design.sizes) if self.averaging.protocol.sliced else 1

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options as JSON can hold them; what it cannot hold is left out."""
        public = {name: getattr(value, "public", value) for name, value in self.averaging.options.items()}
        plain = (int, float, str, dict, type(None))
        return {name: value for name, value in public.items() if isinstance(value, plain)}

    @property
    def ring(self) -> Ring:
        """The protocol's own arithmetic; without a choice of bits, that of 32."""
        if self.averaging.protocol.arithmetic == "ring":
            return TwoAdic()
        if self.averaging.protocol.arithmetic == "field":
            return PrimeField(PRIMES[self.averaging.options.get("bits") or 32])
        name, content = self.averaging.protocol.name, self.averaging.design.hash
        return PrimeField.chosen_by(f"{name} {sorted(self.options.items())} {self.n} {content}")

    def on_symbols(self, round: int = 0) -> PeerProtocol:
        """Return the protocol as it runs on symbols."""
        row = self.averaging.protocol
        options = exact_options({**self.averaging.options, **row.symbolic})
        return partial(row.generator, design=self.averaging.design, round=round, **options)

    def view(self, round: int = 0) -> View:
        """Run the protocol on symbols."""
        return observe(self.on_symbols(round), self.n, coordinates=self.places, ring=self.ring)

    def learns(self, coalition: tuple[int, ...], round: int = 0) -> Knowledge:
        """Return what one coalition learns in a round."""
        if self.joined:
            return knowledge(self.averaging.used(round), coalition)
        return self.view(round).knowledge(coalition)

    def evaluate(self, round: int = 0) -> Evaluate:
        """Return the function that tells what many coalitions learn in a round."""
        parts = self.averaging.settled.parts
        if self.joined:
            return evaluate(self.averaging.used(round), parts)
        return partial(_evaluate_view, self.view(round), parts)

    def _exposure(self, size: int, rounds: int, *, thorough: bool) -> tuple[Exposure, int, int]:
        """Return the worst over all examined rounds, the round in which it is worst, and how many were examined.

        Rounds with the same partitions count once; if that is all of them, it is `distinct(rounds)`.
        """
        distinct, found, examined = self.distinct(rounds), dict[int, Exposure](), 0
        for round, (limit, effort) in sorted(self._extent(size, distinct, thorough=thorough).items()):
            if round < distinct:
                labels = self.averaging.used(round) if self.averaging.settled.partitions else None
                judge = self.evaluate(round)
                found[round] = exposure(self.n, size, judge, limit=limit, effort=effort, labels=labels)
                examined += bool(limit or effort)
        worst = max(found, key=lambda round: found[round].severity)
        return worst_of(list(found.values())), worst, examined

    def _extent(self, size: int, distinct: int, *, thorough: bool) -> Extent:
        """Return how far coalitions are examined; by components as far as whoever chose the design did."""
        used = self.averaging.settled.partitions
        if self.joined and used:
            return extent(self.averaging.design, used, size)
        if thorough:
            return dict.fromkeys(first_and_spread(distinct, max(1, WORK // self.n)), (LIMIT, EFFORT))
        return {0: (LIMIT // 20, EFFORT // 3)}

    def certificate(self, *, collusion: int = 1, rounds: int = 1, thorough: bool = True) -> Certificate:
        """Examine the coalitions of a size over the rounds of a run, and certify what was found.

        Parameters
        ----------
        collusion, rounds
            Members of a coalition, and rounds of the run.
        thorough
            On symbols, take some ten seconds if need be; otherwise a second must do, for suggestions.
        """
        found, worst_round, examined = self._exposure(collusion, rounds, thorough=thorough)
        learned = self.learns(found.worst, worst_round)
        design, widths = self.averaging.design, self.averaging.settled.widths
        exposed = found.exposed_by_iteration
        return Certificate(
            peers=self.n,
            protocol=self.averaging.protocol.name,
            options=self.options,
            design=design.hash,
            gap=design.gap,
            group_size=design.group_size,
            collusion=collusion,
            verdict="exposed" if exposed[-1] else "partial sums" if learned.dimension else "only the total",
            kind=self.averaging.protocol.masks,
            width=widths[0] if widths else None,
            narrowest=min(widths, default=None),
            rounds=rounds,
            meetings=self.meetings(rounds),
            worst_coalition=found.worst,
            exposed=learned.exposed,
            partial_sums=learned.sums,
            dimension=learned.dimension,
            exposed_by_iteration=exposed,
            dimension_by_iteration=found.dimension_by_iteration,
            safe_iterations=next((i for i, count in enumerate(exposed) if count), len(exposed)),
            paper_bound=2 * design.gap - 1,
            exhaustive=found.exhaustive and examined == self.distinct(rounds),
            examined=found.examined,
            breaking=found.breaking,
            rounds_examined=examined,
            method="components" if self.joined else "symbols",
            arithmetic=UNION if self.joined else self.ring.name,
            levels=found.levels,
        )

    def meetings(self, rounds: int) -> int | None:
        """Return the most often that two peers see each other's messages in so many rounds."""
        used = self.averaging.settled.partitions
        return -(-rounds * used // self.averaging.design.gap) if used else None

    def distinct(self, rounds: int) -> int:
        """Return how many different choices of partitions occur in so many rounds; none is taken for another."""
        rotation = self.averaging.rotation
        return max(1, rounds if rotation is None else min(rounds, rotation))


def exact_options(options: Options) -> dict[str, Any]:
    """Return protocol options with floats, also inside values such as a schedule, replaced by their fractions."""

    def exact(value: Any) -> Any:
        if isinstance(value, float):
            return exactly(value)
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: exact(getattr(value, f.name)) for f in fields(value)})
        return value

    return {name: exact(value) for name, value in options.items()}


def _evaluate_view(view: View, iterations: int, coalitions: Coalitions) -> tuple[Levels, npt.NDArray[np.int64]]:
    """Evaluate coalitions one by one with the exact audit."""
    level = np.zeros((len(coalitions), iterations, view.n), dtype=np.int8)
    dimension = np.zeros((len(coalitions), iterations), dtype=np.int64)
    for k, coalition in enumerate(coalitions.tolist()):
        for i in range(iterations):
            learned = view.knowledge(coalition, view.steps * (i + 1) // iterations, sums=False)
            if learned.dimension:
                level[k, i] = PARTIAL
                level[k, i, coalition] = TOTAL
            level[k, i, list(learned.exposed)] = EXPOSED
            dimension[k, i] = learned.dimension
            if len(learned.exposed) == view.n - len(coalition):  # everybody: further messages add nothing
                level[k, i:], dimension[k, i:] = level[k, i], dimension[k, i]
                break
    return level, dimension


def knowledge(labels: Labels, coalition: tuple[int, ...]) -> Knowledge:
    """Return what one coalition learns from the partitions used, as `View` would."""
    members = tuple(sorted({int(member) for member in coalition}))
    sets = components(labels, members)
    honest = labels.shape[1] - len(members)
    return Knowledge(
        coalition=members,
        exposed=tuple(sorted(peers[0] for peers in sets if len(peers) == 1)),
        sums=tuple(sorted(peers for peers in sets if 1 < len(peers) < honest)),
        dimension=len(sets) - 1,
    )
