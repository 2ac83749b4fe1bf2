"""What a run will spend, known before it starts: noise from epsilon or epsilon from noise, and what would fit."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from securedfl.errors import ConfigError, PrivacyError
from securedfl.privacy.budget.accountant import epsilon_of
from securedfl.privacy.budget.skellam import Curve, Shift, divergences, gaussian, sampled
from securedfl.protocols.noise import MOST_VARIANCE, QUICK_VARIANCE, bound_of, distance

Unit = Literal["record", "site"]
Noise = Literal["distributed", "local", "central"]

FINE: Mapping[Unit, float] = {"record": 8.0, "site": 4.0}
"""Grid steps of the clip, in units of the square root of the number of parameters: rounding then costs 0.2 %."""

LEAST_STEPS, MOST_STEPS = 2**10, 2**24
"""Fewest grid steps of the clip, where the ring has room; and most of a value, which float32 holds exactly."""

ROUGH = 1e-4
"""By what part a clipped gradient may be longer than the clip, because float32 rounds."""

COARSE: Mapping[Unit, float] = {"record": 5.0, "site": 2.0}
"""The same, at which the grid is not made coarser any more for the sake of speed."""

LEAST_NOISE, MOST_NOISE = 1e-2, 1e4
"""Between which noise multipliers are looked for."""

SPARED = 1e-3
"""The part of delta that is spent on rounding that goes wrong."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one round spends, and all of them.

    Attributes
    ----------
    unit, noise
        What is protected, and who adds noise: all honest members together, each site alone, or (for comparison) a
        server that all trust.
    clip
        The largest L2 norm of what one record or one site adds to a sum.
    noise_multiplier
        Standard deviation of the noise that is counted, over the clip.
    sampling, steps
        With which probability each record is in a batch, and how many such batches a round takes.
    delta, limit
        Of the promise, and the largest epsilon; None if there is no limit.
    peers, collusion, rounds, size, units
        Of the run: how many, colluders, rounds, parameters, and records or sites that are protected.
    scale
        What a sum is multiplied by before it is brought to the average.
    grid
        The step of whole numbers in what is brought, a power of two.
    """

    unit: Unit
    noise: Noise
    clip: float
    noise_multiplier: float
    sampling: float = 1.0
    steps: int = 1
    delta: float
    limit: float | None = None
    peers: int
    collusion: int
    rounds: int
    size: int
    units: int
    scale: float = 1.0
    grid: float = 0.0

    @property
    def shares(self) -> int:
        """How many sites' noise is counted if everybody takes part."""
        return self.honest(self.peers)

    @property
    def in_average(self) -> bool:
        """Whether noise is part of what is brought to an average; else it is part of every step at a site."""
        return self.unit == "site" or self.noise != "local"

    @property
    def brings_steps(self) -> bool:
        """Whether sites bring a step of the common model itself, not parameters that they have trained."""
        return self.unit == "record" and self.noise != "local"

    def honest(self, members: int) -> int:
        """Return how many sites' noise is counted in an average of so many members: never that of colluders."""
        return max(0, members - self.collusion) if self.noise == "distributed" else 1

    @property
    def clip_steps(self) -> float:
        """The clip in grid steps."""
        return self.clip * self.scale / self.grid

    @property
    def variance(self) -> float:
        """Of one site's noise, in grid steps squared."""
        return (self.noise_multiplier * self.clip_steps) ** 2 / self.shares

    @property
    def shift(self) -> Shift:
        """By how much one record or site moves the total."""
        if self.unit == "site":
            return Shift.whole(self.clip_steps, self.size)
        return Shift.rounded(self.clip_steps * (1 + ROUGH), self.size, self._failure)

    @property
    def _failure(self) -> float:
        return SPARED * self.delta / (self.rounds * self.steps)

    def epsilon(self, spent: Mapping[int, int]) -> float:
        """Return epsilon after rounds: how many, by the number of members."""
        return _epsilon(self, tuple(sorted(spent.items())))

    @property
    def planned(self) -> float:
        """Epsilon at the end, if everybody takes part in every round."""
        return self.epsilon({self.peers: self.rounds})

    @property
    def first(self) -> float:
        """Epsilon after one round."""
        return self.epsilon({self.peers: 1})

    def fits(self, spent: Mapping[int, int]) -> bool:
        """Tell whether so much is within the budget."""
        return self.limit is None or self.epsilon(spent) <= self.limit

    @property
    def noise_in_mean(self) -> float:
        """Standard deviation of each number of the mean, over the clip: the noise of all members counts here."""
        everybody = self.peers / self.shares if self.noise == "distributed" else self.peers
        total = self.noise_multiplier * math.sqrt(1 if self.noise == "central" else everybody)
        batch = self.sampling * self.units if self.unit == "record" else self.peers
        return total / batch

    @property
    def signal(self) -> float:
        """How large the sum of all rounds can be at best, over the noise in it.

        If all pushed the same way in all rounds, the signal would grow with their number, the noise with its root.
        Below 1 nothing can be learned.
        """
        return math.sqrt(self.rounds * self.steps) / (self.noise_in_mean * math.sqrt(self.size))

    @property
    def reach(self) -> float:
        """The largest absolute value before noise, in grid steps; what is beyond is cut, at each site by itself."""
        if self.unit == "site":
            return self.clip_steps + 1
        return self.clip_steps * max(8.0, 2 * self.sampling * self.units / self.peers)

    @property
    def range(self) -> float:
        """The largest absolute value of what a site brings, noise included."""
        return self.grid * (math.ceil(self.reach) + bound_of(self.variance))


@lru_cache(maxsize=256)
def _curve(plan: Plan, members: int) -> Curve | None:
    """Return the divergences of a round among so many members; None if no honest noise is in it."""
    honest = plan.honest(members)
    if not honest:
        return None
    if plan.noise == "central":
        return sampled(gaussian(plan.noise_multiplier), plan.sampling)
    return sampled(divergences(plan.variance * honest, plan.shift), plan.sampling)


@lru_cache(maxsize=4096)
def _epsilon(plan: Plan, spent: tuple[tuple[int, int], ...]) -> float:
    """Return epsilon after rounds: pairs of how many members, and how many times."""
    rounds = sum(times for _, times in spent)
    if not rounds:
        return 0.0
    curves = [(_curve(plan, members), times) for members, times in spent]
    known = [(curve, times * plan.steps) for curve, times in curves if curve is not None]
    if len(known) < len(curves):
        return math.inf
    left = plan.delta * (1 - SPARED * rounds / plan.rounds) if plan.unit == "record" else plan.delta
    first = epsilon_of(known, left)
    if plan.noise == "central" or math.isinf(first):
        return first
    # what the drawn numbers may differ from true Skellam numbers costs (1 + exp(epsilon)) times as much delta
    guess = 1.02 * first + 0.01
    draws = float(plan.size) * plan.steps * sum(members * times for members, times in spent)
    cost = (1 + math.exp(min(guess, 700.0))) * distance(draws)
    found = epsilon_of(known, left - cost)
    return found if found <= guess else math.inf


def settled(plan: Plan, *, epsilon: float | None, capacity: float | None, over: str = "refuse") -> Plan:
    """Return the plan with its grid, and with the noise that epsilon asks for if the noise is not known yet.

    Parameters
    ----------
    plan
        With a noise multiplier, or 0 if it is to be found; its grid does not matter.
    epsilon
        The budget.
    capacity
        The largest sum that the ring holds, in its own steps; None if noise is added before the average.
    over
        ``"refuse"`` a plan that is over budget; or let it ``"stop"`` when the budget is spent.
    """
    check(plan)
    if plan.noise_multiplier:
        plan = with_grid(replace(plan, limit=epsilon), capacity)
        if epsilon is not None:
            _check_budget(plan, epsilon, capacity, over)
        return plan
    if epsilon is None:
        raise ConfigError("[privacy] needs epsilon, from which the noise follows, or noise_multiplier")
    found = _least_noise(plan, epsilon, capacity)
    if found is None:
        raise PrivacyError(
            f"no noise makes {plan.rounds} rounds ({epsilon:g}, {plan.delta:g})-differentially private; allow a larger "
            "epsilon, fewer rounds or a smaller sampling"
        )
    return replace(found, limit=epsilon)


def check(plan: Plan) -> None:
    """Refuse a plan that promises nothing."""
    if plan.delta >= 1 / plan.units:
        raise ConfigError(
            f"delta = {plan.delta:g} is not below 1/{plan.units}: it would allow to publish whole {plan.unit}s now and "
            f"then; take at most {0.1 / plan.units:.1g}"
        )
    if not plan.shares:
        raise PrivacyError(
            f"{plan.collusion} of {plan.peers} peers may collude, so nobody's noise would be left to count; allow "
            'fewer colluders, or take noise = "local"'
        )


def with_grid(plan: Plan, capacity: float | None) -> Plan:
    """Return the plan on the finest grid that is worth it and fits the ring, noise and sum of all peers included."""
    wanted = max(LEAST_STEPS, FINE[plan.unit] * math.sqrt(plan.size))
    grid = 2.0 ** math.floor(math.log2(plan.clip * plan.scale / wanted))
    room = min(MOST_STEPS, math.inf if capacity is None else capacity / plan.peers)
    for _ in range(60):
        chosen = replace(plan, grid=grid)
        quick = chosen.variance <= QUICK_VARIANCE or chosen.clip_steps < 2 * COARSE[plan.unit] * math.sqrt(plan.size)
        fits = quick and chosen.variance <= MOST_VARIANCE and chosen.range / grid + 1 <= room
        if plan.noise == "central" or fits:
            return chosen
        grid *= 2
    raise ConfigError("the ring has no room for this noise; use more bits")


def most_rounds(plan: Plan, epsilon: float) -> int:
    """Return how many rounds of a plan fit into a budget."""

    def too_much(rounds: int) -> bool:
        # what rounding may cost is dealt to the rounds of the plan, so that a shorter plan is another one
        shorter = replace(plan, rounds=rounds)
        return max(one.epsilon({plan.peers: rounds}) for one in (plan, shorter)) > epsilon

    return bisect_left(range(1, 2**30), True, key=too_much)


def _least_noise(plan: Plan, epsilon: float, capacity: float | None) -> Plan | None:
    """Return the plan with the smallest noise multiplier that keeps within epsilon, to three digits, if any does."""

    def at(multiplier: float) -> Plan:
        return with_grid(replace(plan, noise_multiplier=multiplier), capacity)

    high = LEAST_NOISE
    while at(high).planned > epsilon:
        high *= 1.5
        if high > MOST_NOISE:
            return None
    low = high / 1.5
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if at(middle).planned <= epsilon else (middle, high)
    return at(float(f"{high * 1.0005:.4g}"))


def _check_budget(plan: Plan, epsilon: float, capacity: float | None, over: str) -> None:
    planned = plan.planned
    if planned <= epsilon or (over == "stop" and plan.first <= epsilon):
        return
    rounds = most_rounds(plan, epsilon)
    fitting = _least_noise(replace(plan, limit=None), epsilon, capacity)
    found = [f"rounds = {rounds}"] if rounds else []
    found += [f"noise_multiplier = {fitting.noise_multiplier:g}"] if fitting else []
    if plan.first > epsilon:
        raise PrivacyError(
            f"the first round alone would spend epsilon {plan.first:.3g}, over the budget of {epsilon:g}; "
            f"this would fit: {' or '.join(found) or 'a larger epsilon'}"
        )
    raise PrivacyError(
        f"{plan.rounds} rounds would spend epsilon {planned:.3g} at delta {plan.delta:g}, over the budget of "
        f"{epsilon:g}; these would fit: {' or '.join(found)}"
    )
