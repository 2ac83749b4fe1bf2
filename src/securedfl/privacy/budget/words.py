"""What a plan promises, in words and as a value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from securedfl.privacy.budget.plan import Noise, Plan, Unit

_UNITS = {"record": "each record", "site": "each site as a whole"}


def pair(epsilon: float, delta: float) -> str:
    """Return "(2.02, 1e-05)"; epsilon is rounded up."""
    if math.isinf(epsilon):
        return "(without any bound)"
    digits = max(0, 2 - math.floor(math.log10(epsilon))) if epsilon > 0 else 0
    up = math.ceil(epsilon * 10**digits - 1e-9) / 10**digits
    return f"({up:g}, {delta:g})"


def sentence(plan: Plan, now: float, end: float | None = None, *, examined: bool = True) -> str:
    """Return the promise: against whom, of what, now and at the end.

    Parameters
    ----------
    plan, now, end
        Of the run, the epsilon that it has spent, and that at its end, by default after all rounds of the plan.
    examined
        Whether every coalition was examined.
    """
    whom = _UNITS[plan.unit]
    promised = pair(max(_end(plan, end), now), plan.delta)
    promise = f"{promised}-differentially private for {whom} at the end of the run"
    if plan.noise == "distributed" and _end(plan, end) > now and promised != pair(plan.limit or 0.0, plan.delta):
        promise += " if everybody takes part until then"
    so_far = f"so far {pair(now, plan.delta)}"
    if plan.noise == "distributed":
        who = "peers learns" if plan.collusion == 1 else "peers learn"
        any_of = f"{'' if examined else 'As far as was examined, '}any {plan.collusion} of {plan.peers} {who}"
        text = f"{any_of[0].upper()}{any_of[1:]} only the total, and that total is {promise} ({so_far})."
        return text + useless(plan)
    if plan.noise == "local":
        return f"Whoever colludes, what a site sends is {promise} ({so_far}).{useless(plan)}"
    return (
        f"For comparison only: a server that all sites trust would publish totals that are {promise} ({so_far}). "
        "These peers promise nothing of the kind to each other."
    )


def useless(plan: Plan) -> str:
    """Return a warning if the noise drowns whatever all together can say; else an empty string."""
    if plan.signal >= 1:
        return ""
    many = f"{plan.peers} sites are" if plan.unit == "site" else f"batches of {plan.sampling * plan.units:.0f} are"
    return (
        f" But {many} too few for this noise: each number of the mean gets noise of {plan.noise_in_mean:.2g} clip, "
        f"and what all push together in all rounds is at best {plan.signal:.2g} times the noise. Little can be learned."
    )


def _end(plan: Plan, end: float | None) -> float:
    if end is not None:
        return end
    return plan.planned if plan.limit is None else min(plan.planned, plan.limit)


@dataclass(frozen=True, kw_only=True)
class PrivacyPromise:
    """What a plan promises, as certificates and ledgers hold it.

    ``epsilon`` is what was spent so far; None stands for no bound. Certificates have the ``sentence``, and ledgers
    ``epsilon_by_round``.
    """

    unit: Unit
    noise: Noise
    epsilon: float | None
    epsilon_at_the_end: float | None
    budget: float | None
    delta: float
    clip: float
    noise_multiplier: float
    sampling: float
    steps_per_round: int
    units: int
    honest_noise_shares: int
    grid: float
    noise_variance_per_site_in_steps: float | None
    noise_in_mean: float
    signal_over_noise: float
    adjacency: str
    accountant: str = "Rényi divergences of Skellam noise, converted by dp-accounting"
    assumes: str = (
        "the first model does not depend on data; AES-256-CTR cannot be told from random; when a site is late or "
        "absent does not depend on its data"
    )
    sentence: str = ""
    epsilon_by_round: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, now: float = 0.0, end: float | None = None, *, examined: bool = True) -> PrivacyPromise:
        """Return the promise of a plan; ``now``, ``end`` and ``examined`` as for `sentence`."""
        return cls(
            unit=plan.unit,
            noise=plan.noise,
            epsilon=_finite(now),
            epsilon_at_the_end=_finite(plan.planned if end is None else max(end, now)),
            budget=plan.limit,
            delta=plan.delta,
            clip=plan.clip,
            noise_multiplier=plan.noise_multiplier,
            sampling=plan.sampling,
            steps_per_round=plan.steps,
            units=plan.units,
            honest_noise_shares=plan.shares,
            grid=plan.grid,
            noise_variance_per_site_in_steps=None if plan.noise == "central" else plan.variance,
            noise_in_mean=plan.noise_in_mean,
            signal_over_noise=plan.signal,
            adjacency="one record more or less" if plan.unit == "record" else "one site's difference, or zeros",
            sentence=sentence(plan, now, end, examined=examined),
        )

    def to_dict(self, *left_out: str) -> dict[str, Any]:
        """Return plain values, as JSON holds them, without what is left out."""
        return {key: value for key, value in asdict(self).items() if key not in left_out}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
