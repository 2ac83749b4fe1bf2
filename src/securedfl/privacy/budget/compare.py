"""The same promise kept in different ways, and the same noise against more colluders: what `securedfl budget` shows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from securedfl.errors import ConfigError
from securedfl.privacy.budget.accountant import loss_epsilon
from securedfl.privacy.budget.plan import Noise, Plan, most_rounds, settled, with_grid

KINDS: tuple[Noise, ...] = ("distributed", "local", "central")

CAPACITY = 2**31 - 1
"""Of a ring of 32 bits."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to add noise.

    The plan tells epsilon by Rényi divergences, as certificates do; ``tighter`` is by privacy loss distributions of
    Gaussian noise.
    """

    plan: Plan
    tighter: float


def solve(plan: Plan, *, epsilon: float | None, find: str) -> Plan:
    """Return the plan with what was not given: ``"noise"``, ``"epsilon"``, ``"rounds"`` or ``"sampling"``."""
    if find == "noise":
        return _settled(replace(plan, noise_multiplier=0.0), epsilon)
    if find == "epsilon":
        return _settled(plan)
    if epsilon is None:
        raise ConfigError(f"to find {find}, give epsilon and the noise multiplier")
    return _most_rounds(plan, epsilon) if find == "rounds" else _most_sampling(plan, epsilon)


def _settled(plan: Plan, epsilon: float | None = None) -> Plan:
    return settled(plan, epsilon=epsilon, capacity=CAPACITY)


def _most_rounds(plan: Plan, epsilon: float) -> Plan:
    rounds = 1
    # a longer plan deals what rounding may cost to more rounds, so that a few more fit
    for _ in range(4):
        rounds = most_rounds(_settled(replace(plan, rounds=max(1, rounds))), epsilon)
    if not rounds:
        raise ConfigError(f"not even one round is within epsilon {epsilon:g}; take more noise")
    return _settled(replace(plan, rounds=rounds), epsilon)


def _most_sampling(plan: Plan, epsilon: float) -> Plan:
    def at(batch: int) -> Plan:
        return _settled(replace(plan, sampling=batch / plan.units))

    most = bisect_left(range(1, plan.units + 1), True, key=lambda batch: at(batch).planned > epsilon)
    if not most:
        raise ConfigError(f"not even batches of one record are within epsilon {epsilon:g}; take more noise")
    return replace(at(most), limit=epsilon)


def cases(plan: Plan) -> list[Case]:
    """Return the three kinds of noise with the same multiplier, so at the same epsilon, and their noise in the mean."""
    tighter = loss_epsilon(plan.noise_multiplier, plan.sampling, plan.rounds * plan.steps, plan.delta)
    return [Case(plan=_of_kind(plan, kind, plan.noise_multiplier), tighter=tighter) for kind in KINDS]


def by_colluders(plan: Plan) -> Iterator[tuple[int, float]]:
    """Yield epsilon if other numbers of peers collude than planned, or so many honest members are missing."""
    for colluders in range(1, plan.peers):
        honest = plan.peers - colluders
        # the noise of each site stays; what is counted changes
        yield colluders, plan.epsilon({honest + plan.collusion: plan.rounds})


def curves(plan: Plan, multipliers: Sequence[float]) -> dict[str, tuple[list[float], list[float]]]:
    """Return epsilon against the noise in the mean for the three kinds."""
    found = {}
    for kind in KINDS:
        made = [_of_kind(plan, kind, each) for each in multipliers]
        found[str(kind)] = ([one.noise_in_mean for one in made], [one.planned for one in made])
    return found


def _of_kind(plan: Plan, kind: Noise, multiplier: float) -> Plan:
    return with_grid(replace(plan, noise=kind, noise_multiplier=multiplier, limit=None), CAPACITY)
