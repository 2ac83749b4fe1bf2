"""Averaging by ADMM in floats, as published: within groups (Algorithm 3).

Algorithm 1 is the same with everybody in one group, the protocol "classic"; two iterations of it reveal all parameters.
For repeating the paper. Float masks are of bounded width and leak (docs/guides/privacy.md);
`securedfl.protocols.grouped` is the same algorithm behind perfect masks. The names are the paper's: w private
parameters, x local variable, y message, z consensus, lam dual variable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from securedfl.designs.design import Design, Group, Partition
from securedfl.errors import ConfigError
from securedfl.protocols.steps import Array, Draw, Options, Outbox, Settled, Steps, total

Finish = Literal["exact", "literal"]

DEFAULT_RHO = 0.0625
"""Masks 16 wide, far wider than parameters, for an error of about 1e-6 in float32 (docs/concepts/protocols.md)."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The penalty per iteration: ``start * decay ** (i // period)`` for i = 0, 1, ....

    Parameters
    ----------
    start, decay, period
        The first penalty, the factor by which it changes, and after how many iterations it does.

    Raises
    ------
    ConfigError
        A penalty would not be positive and finite, or the period is below 1.

    Examples
    --------
    >>> import securedfl
    >>> schedule = securedfl.Schedule(start=2.0, decay=0.5)
    >>> [schedule[i] for i in range(3)]
    [2.0, 1.0, 0.5]
    """

    start: Any
    decay: Any = 1
    period: int = 1

    def __post_init__(self) -> None:
        for name in ("start", "decay"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"rho's {name} must be a positive finite number, not {value!r}")
        if self.period < 1:
            raise ConfigError(f"rho's period must be at least 1 iteration, not {self.period!r}")

    def __getitem__(self, iteration: int) -> Any:
        return self.start * self.decay ** (iteration // self.period)

    @property
    def public(self) -> float | dict[str, float]:
        """The schedule as JSON holds it; one that never changes is a number."""
        if self.decay == 1:
            return float(self.start)
        return {"start": float(self.start), "decay": float(self.decay), "period": self.period}


AUTHORS = {
    1: Schedule(start=3.0),
    2: Schedule(start=3.0, decay=3e-4),
    3: Schedule(start=7.0, decay=0.01),
    4: Schedule(start=70.0, decay=7e-6, period=2),
    5: Schedule(start=50.0, decay=7e-6, period=3),
    6: Schedule(start=100.0, decay=7e-6, period=3),
    7: Schedule(start=100.0, decay=7e-6, period=4),
}
"""The schedules of the authors' published code by number of iterations (github.com/beomyeol/SecureD-FL,
calculate_admm_error.py); the paper itself states none."""


def paper(
    me: int,
    w: Array,
    design: Design,
    *,
    rho: float | Schedule = DEFAULT_RHO,
    iterations: int = 2,
    finish: Finish = "exact",
    round: int = 0,
    draw: Draw,
) -> Steps:
    """Average by ADMM, talking only within the groups of a design (SecureAggregation of Algorithm 3).

    Parameters
    ----------
    rho
        The penalty: constant, or a `Schedule`. The first message hides w behind a mask ``1/rho`` wide: a small rho
        hides more and rounds more.
    iterations
        Two suffice with the exact finish; more only reveal more.
    finish
        ``"exact"`` solves for the mean, because z - mean shrinks by the known factor q in every iteration after the
        first. ``"literal"`` returns the last z, as the paper does.
    me, w, design, round, draw
        As for every protocol (`securedfl.protocols.steps`); lam^0 ~ U[0, 1) is drawn.
    """
    schedule = check_options(rho=rho, iterations=iterations, finish=finish)
    _check_rounding(schedule, iterations, w)
    n = design.n
    u, z = draw(w), np.zeros(1, dtype=w.dtype)
    # u = lam/rho, the scaled dual variable
    u *= 1 / schedule[0]
    for i, at in enumerate(design.turns(round, iterations)):
        pi, g = design.partition(at), design.group(me, at)
        c, q = factors(schedule[i])

        # y = x + lam/rho = c (w + lam/rho) + q z, with x from the x minimisation
        y = w + u
        y *= c
        y += q * z
        received = yield {v: y for v in g if v != me}
        # partial z sum
        z_g = total([y if v == me else received[v] for v in g])
        z_g /= n
        sums = {g: z_g}
        if len(pi) > 1:
            received = yield relay(me, g, pi, z_g)
            sums |= collect(me, g, pi, received)
        # final z sum
        z_before, z = z, total([sums[h] for h in pi])

        if i + 1 < iterations:
            # lam + rho (x - z) = rho (y - z)
            u = y - z
            if schedule[i] != schedule[i + 1]:
                u *= schedule[i] / schedule[i + 1]

    if finish == "exact":
        # z - mean = q (z_before - mean) is an equality: solve it for the mean
        z = z - q * z_before
        z *= 1 / c
    return z


def factors(rho: Any) -> tuple[Any, Any]:
    """Return c and q of the recurrence z = c mean + q z_before that holds from the second iteration on."""
    return 2 / (2 + rho), rho / (2 + rho)


def check_options(*, rho: float | Schedule = DEFAULT_RHO, iterations: int = 2, finish: str = "exact") -> Schedule:
    """Return rho as a schedule; raise `ConfigError` for options that make no average."""
    if not isinstance(rho, Schedule) and (isinstance(rho, bool) or not isinstance(rho, Real)):
        raise ConfigError(f"rho must be a number or a Schedule, not {rho!r}")
    if finish not in ("exact", "literal"):
        raise ConfigError(f'finish must be "exact" or "literal", not {finish!r}')
    check_iterations(iterations, least=2 if finish == "exact" else 1)
    return rho if isinstance(rho, Schedule) else Schedule(start=rho)


MOST_ITERATIONS = 1000
"""Far more than anybody needs: two give the exact average."""


def check_iterations(iterations: Any, *, least: int) -> None:
    """Raise `ConfigError` for a number of iterations that gives no average."""
    if isinstance(iterations, bool) or not isinstance(iterations, int):
        raise ConfigError(f"iterations must be a whole number, not {iterations!r}")
    if iterations > MOST_ITERATIONS:
        raise ConfigError(
            f"{iterations} iterations are too many: two give the exact average; use {MOST_ITERATIONS} at most"
        )
    if iterations < least:
        one = ' (the protocol "paper" takes one with finish = "literal")' if iterations == 1 else ""
        raise ConfigError(f"{iterations} iterations are too few: at least {least} give the average{one}")


def _check_rounding(schedule: Schedule, iterations: int, w: Array) -> None:
    """Refuse masks so wide that the parameters would drown in their rounding."""
    narrowest = min(schedule[i] for i in range(iterations))
    if w.dtype.kind == "f" and np.finfo(w.dtype).eps > narrowest:
        raise ConfigError(
            f"rho = {narrowest:g} makes masks {1 / narrowest:g} wide, whose rounding in {w.dtype} exceeds 1; "
            + ("use a larger rho, or float64" if w.dtype == np.float32 else "use a larger rho")
        )


def relay(me: int, g: Group, pi: Partition, z_g: Array) -> Outbox:
    """Send z_g to the other groups; the members share the work: each serves the peers of its own rank."""
    rank = g.index(me)
    return {v: z_g for h in pi if h != g for j, v in enumerate(h) if j % len(g) == rank}


def collect(me: int, g: Group, pi: Partition, received: Mapping[int, Array]) -> dict[Group, Array]:
    """Receive the other groups' sums, each from the member that serves this peer's rank."""
    rank = g.index(me)
    return {h: received[h[rank % len(h)]] for h in pi if h != g}


def settle(_design: Design, options: Options) -> Settled:
    """Return what follows from the options of ADMM in floats."""
    completed = dict(options)
    completed.setdefault("iterations", 2)
    completed.setdefault("rho", DEFAULT_RHO)
    schedule, iterations = check_options(**completed), completed["iterations"]
    return settled(completed, iterations, interval_widths(schedule, iterations))


def settled(options: Options, iterations: int, widths: tuple[float, ...] = ()) -> Settled:
    """Return what follows from the iterations; two reveal what connected components say, more more."""
    return Settled(options=options, partitions=iterations, parts=iterations, joined=iterations == 2, widths=widths)


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
