"""A scenario: a protocol with its options on a design, and how what coalitions learn from it is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from securedfl.designs import Design
from securedfl.designs.coalition_search import (
    Coalitions,
    Evaluate,
    Exposure,
    Labels,
    Levels,
    exposure,
    worst_of,
)
from securedfl.designs.coalitions import (
    Extent,
    components,
    evaluate,
    extent,
    first_and_spread,
    rotation,
    used,
)
from securedfl.errors import ConfigError
from securedfl.privacy.symbolic.algebra import Arithmetic, PrimeField, TwoAdic
from securedfl.privacy.symbolic.view import Knowledge, PeerProtocol, View, exact_options, observe
from securedfl.protocols import Schedule, by_name
from securedfl.protocols.admm import DEFAULT_RHO, check_options, factors
from securedfl.protocols.fixedpoint import Symbols
from securedfl.protocols.shares.shares import DEFAULT_COLLUSION, check_strength

Kind = Literal["perfect", "bounded", "none"]

LIMIT, EFFORT = 20_000, 900
"""How many coalitions are examined on symbols: all up to the limit, else about as many as the effort."""

WORK = 150
"""Peers times rounds up to which every round is examined on symbols."""

UNKNOWN_ROTATION = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is audited.

    Parameters
    ----------
    n, protocol, options
        Peers, the protocol's name and its options.
    call
        The generator function with everything but ``round`` filled in.
    kind
        Of the masks: ``perfect`` (uniform over the ring), ``bounded`` (of bounded width) or ``none``.
    iterations
        How many parts of equal numbers of steps the audit reports on.
    coordinates
        How many parameters the audit needs to tell slices apart.
    widths
        Of bounded masks: how wide the interval is that a message of each iteration leaves for a parameter.
    design
        Who meets whom.
    graph
        The partitions in use in a round, if their connected components say all (`securedfl.designs.coalitions`).
    meets
        The partitions in which single peers' messages are seen in a round.
    rotation
        After how many rounds the same partitions come again.
    """

    n: int
    protocol: str
    call: Callable[..., Any] = field(compare=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "bounded"
    iterations: int = 1
    coordinates: int = 1
    widths: tuple[float, ...] = ()
    design: Design | None = None
    graph: Callable[[int], Labels] | None = field(default=None, compare=False)
    meets: Callable[[int], Labels] | None = field(default=None, compare=False)
    rotation: int = 1

    @property
    def ring(self) -> Arithmetic:
        """The arithmetic that fits the masks."""
        if self.kind == "perfect":
            return TwoAdic()
        content = self.design.hash if self.design is not None else ""
        return PrimeField.chosen_by(f"{self.protocol} {sorted(self.options.items())} {self.n} {content}")

    @property
    def rho(self) -> float | Schedule:
        """The penalty as the protocol takes it."""
        given = self.options["rho"]
        return Schedule(**given) if isinstance(given, Mapping) else float(given)

    def without_shortcut(self) -> Scenario:
        """Return the same scenario, to be examined by running the code on symbols only."""
        return replace(self, graph=None)

    def view(self, round: int = 0) -> View:
        """Run the protocol on symbols."""
        call: PeerProtocol = partial(self.call, round=round)
        return observe(call, self.n, coordinates=self.coordinates, ring=self.ring)

    def learns(self, coalition: tuple[int, ...], round: int = 0) -> Knowledge:
        """Return what one coalition learns in a round."""
        if self.graph is not None:
            return knowledge(self.graph(round), coalition)
        return self.view(round).knowledge(coalition)

    def evaluate(self, round: int = 0, *, fast: bool = True) -> Evaluate:
        """Return the function that tells what many coalitions learn in a round."""
        if fast and self.graph is not None:
            return evaluate(self.graph(round), self.iterations)
        return partial(_evaluate_view, self.view(round), self.iterations)

    def exposure(self, size: int, *, rounds: int = 1, thorough: bool = True) -> tuple[Exposure, int, int]:
        """Examine the coalitions of a size in the rounds of a run.

        Parameters
        ----------
        size, rounds
            Members of a coalition, and rounds of the run.
        thorough
            On symbols, take some ten seconds if need be; otherwise a second must do, for suggestions.

        Returns
        -------
        exposure, round, examined
            The worst over all examined rounds, the round in which it is worst, and how many rounds were examined.
            Rounds with the same partitions count once; if that is all of them, it is `distinct(rounds)`.
        """
        distinct = self.distinct(rounds)
        reach = self._extent(size, distinct, thorough=thorough)
        found = {}
        for round, limit, effort in reach.within(distinct):
            labels, judge = self.meets(round) if self.meets is not None else None, self.evaluate(round)
            found[round] = exposure(self.n, size, judge, limit=limit, effort=effort, labels=labels)
        worst = max(found, key=lambda round: found[round].severity)
        return worst_of(list(found.values())), worst, sum(round < distinct for round in reach.rounds)

    def _extent(self, size: int, distinct: int, *, thorough: bool) -> Extent:
        """Return how far coalitions are examined; by the graph as far as whoever chose the design did."""
        if self.graph is not None and self.design is not None:
            return extent(self.design, len(self.graph(0)), size)
        if thorough:
            return Extent(LIMIT, EFFORT, first_and_spread(distinct, max(1, WORK // self.n)))
        return Extent(LIMIT // 20, EFFORT // 3, frozenset({0}))

    def meetings(self, rounds: int) -> int | None:
        """Return the most often that two peers see each other's messages in so many rounds."""
        if self.meets is None or self.design is None:
            return None
        return -(-rounds * len(self.meets(0)) // self.design.gap)

    def distinct(self, rounds: int) -> int:
        """Return how many different choices of partitions occur in so many rounds."""
        return max(1, min(rounds, self.rotation))


def scenario(protocol: str, design: Design, options: Mapping[str, Any] | None = None) -> Scenario:
    """Return the scenario of one of the package's own protocols.

    Parameters
    ----------
    protocol
        Its name.
    design
        Who meets whom.
    options
        As the protocol takes them (rho, iterations, finish; strength).
    """
    given = dict(options or {})
    makers = {"grouped": _admm, "classic": _admm, "plain": _plain, "shares": _shares, "resilient": _shares}
    if protocol not in makers:
        by_name(protocol)  # an unknown name is an error that lists the known ones
        raise ConfigError(f"nothing is known about the masks of {protocol!r}; audit it with privacy.custom()")
    return makers[protocol](protocol, design, given)


def custom(
    name: str, call: Callable[..., Any], n: int, *, kind: Kind = "bounded", coordinates: int = 1
) -> Scenario:
    """Return the scenario of a protocol of your own.

    Parameters
    ----------
    name, call
        What to call it, and the generator function, called as ``call(me, w, round=round, draw=draw)``.
    n
        The number of peers.
    kind
        ``perfect`` if it calculates in Z_2^b and masks are uniform there, else ``bounded`` or ``none``.
    coordinates
        More than one if it treats slices of the parameters differently.
    """
    # whether rounds repeat is not known, so none is taken for another
    return Scenario(
        n=n, protocol=name, call=call, kind=kind, coordinates=coordinates, rotation=UNKNOWN_ROTATION
    )


def _admm(protocol: str, design: Design, options: dict[str, Any]) -> Scenario:
    met = design if protocol == "grouped" else Design.everyone(design.n)
    iterations = options.setdefault("iterations", 2)
    options.setdefault("rho", DEFAULT_RHO)
    schedule = check_options(**options)
    exact = exact_options({**options, "finish": "literal"})  # sends the same messages, also in one iteration

    return Scenario(
        n=design.n,
        protocol=protocol,
        call=partial(by_name(protocol), design=design, **exact),
        options=_public(options),
        kind="bounded",
        iterations=iterations,
        widths=interval_widths(schedule, iterations),
        design=met,
        graph=partial(used, met, iterations) if iterations == 2 else None,
        meets=partial(used, met, iterations),
        rotation=rotation(met, iterations),
    )


def interval_widths(schedule: Schedule, iterations: int) -> tuple[float, ...]:
    """Return how wide an interval each iteration's message leaves for a parameter.

    Up to public terms, y^1 = c (w + lam/rho) and y^{i+1} = c (w + k y^i), k = rho_i / rho_{i+1}; lam is in [0, 1).
    The later a message, the less of it is mask: with a small constant rho the second leaves half the first's width.
    """
    widths = []
    of_w, of_mask, k = 0.0, 1 / float(schedule[0]), 1.0
    for i in range(iterations):
        c = float(factors(schedule[i])[0])
        of_w, of_mask = c * (1 + k * of_w), c * k * of_mask
        widths.append(of_mask / of_w)
        k = float(schedule[i]) / float(schedule[i + 1])
    return tuple(widths)


def _plain(protocol: str, design: Design, options: dict[str, Any]) -> Scenario:
    return Scenario(
        n=design.n,
        protocol=protocol,
        call=partial(by_name(protocol), design=design, **options),
        options=_public(options),
        kind="none",
        design=design,
    )


def _shares(protocol: str, design: Design, options: dict[str, Any]) -> Scenario:
    m = check_strength(design, options.get("strength"), options.get("collusion"))
    asked = {"strength": m}
    if protocol == "resilient":  # chooses its strength itself, again after every loss
        asked = {"collusion": options.get("collusion", DEFAULT_COLLUSION)}
        m = check_strength(design, None, asked["collusion"])

    return Scenario(
        n=design.n,
        protocol=protocol,
        call=partial(by_name(protocol), design=design, codec=Symbols(), **asked),
        options={"strength": m, **{name: options[name] for name in ("bits", "range") if name in options}},
        kind="perfect",
        coordinates=math.lcm(design.n, *design.sizes),
        design=design,
        # Members own slices, so fewer shares are seen than this assumes; but a stand-in for a lost member may see any.
        graph=partial(used, design, m),
        meets=partial(used, design, m),
        rotation=rotation(design, m),
    )


def _public(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as JSON can hold them; a schedule that never changes is a number."""

    def plain(value: Any) -> Any:
        if not isinstance(value, Schedule):
            return value
        if value.decay == 1:
            return float(value.start)
        return {"start": float(value.start), "decay": float(value.decay), "period": value.period}

    return {name: plain(value) for name, value in options.items()}


def _evaluate_view(
    view: View, iterations: int, coalitions: Coalitions
) -> tuple[Levels, npt.NDArray[np.int64]]:
    """Evaluate coalitions one by one with the exact audit."""
    level = np.zeros((len(coalitions), iterations, view.n), dtype=np.int8)
    dimension = np.zeros((len(coalitions), iterations), dtype=np.int64)
    for k, coalition in enumerate(coalitions.tolist()):
        for i in range(iterations):
            learned = view.knowledge(coalition, view.steps * (i + 1) // iterations)
            if learned.dimension:
                level[k, i] = 1
                level[k, i, coalition] = 0
            level[k, i, list(learned.exposed)] = 2
            dimension[k, i] = learned.dimension
            if len(learned.exposed) == view.n - len(coalition):  # everybody: further messages add nothing
                level[k, i:], dimension[k, i:] = level[k, i], dimension[k, i]
                break
    return level, dimension


def knowledge(labels: Labels, coalition: Iterable[int]) -> Knowledge:
    """Return what one coalition learns from the partitions used, as `View.knowledge` would."""
    members = tuple(sorted({int(member) for member in coalition}))
    sets = components(labels, members)
    honest = labels.shape[1] - len(members)
    return Knowledge(
        coalition=members,
        exposed=tuple(sorted(peers[0] for peers in sets if len(peers) == 1)),
        sums=tuple(sorted(peers for peers in sets if 1 < len(peers) < honest)),
        dimension=len(sets) - 1,
    )
