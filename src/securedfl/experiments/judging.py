"""What an interval says about a claim: it holds, it differs, or it is not decided, and what would decide it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from securedfl.experiments.results import Check, signed
from securedfl.sureness import CONFIDENCE, Difference

Rule = Callable[[str, Difference], Check]
"""Judges a difference at a place."""

MOST_SEEDS = 100
"""Seeds that anybody would run."""


def within(place: str, difference: Difference, limit: float) -> Check:
    """Judge the claim that two methods are within so many points of each other."""
    return judge(place, difference, -limit, limit)


def below(place: str, difference: Difference) -> Check:
    """Judge the claim that the first method is below the second."""
    return judge(place, difference, -math.inf, 0.0)


def above(place: str, difference: Difference, limit: float = 0.0) -> Check:
    """Judge the claim that the first method is above the second, or less than ``-limit`` points below it."""
    return judge(place, difference, limit, math.inf)


def judge(place: str, difference: Difference, least: float, most: float) -> Check:
    """Judge the claim that a difference lies between two ends, by whether its whole interval does, or none of it.

    One seed tells about the models that it gave, and not about trainings like them.
    """
    d = difference
    sure = f"{place}: {signed(d.points)} [{signed(d.low)}, {signed(d.high)}]"
    sure += "" if d.seeds > 1 else ", one seed"
    sure += "" if d.p is None else f", McNemar p {_p(d.p)}"
    if least < d.low and d.high < most:
        return Check(sure, "holds" if d.seeds > 1 else "holds for these models")
    if d.high < least or most < d.low:
        return Check(sure, "differs" if d.seeds > 1 else "differs for these models")
    return Check(f"{sure}; {needed(d, least, most)}", "not decided")


def needed(difference: Difference, least: float, most: float) -> str:
    """Say what would decide, if the difference, and what seeds differ by, stayed as they are."""
    d = difference
    distance = min(abs(d.points - end) for end in (least, most) if math.isfinite(end))
    if not distance:
        return "no number of samples would decide at exactly the limit"
    here = f"here are {d.predictions // d.seeds:,}"
    if d.seeds > 1 and d.deviation is None:
        return "what would decide was not kept"
    if d.deviation is None:
        return f"about {_rounded(_samples(d, d.half / distance))} test predictions would decide, {here}"
    if (tested := d.tested or 0.0) >= distance:
        return (
            f"more seeds alone would not: it takes about {_rounded(_samples(d, tested / distance))} test "
            f"predictions, {here}"
        )
    seeds = _seeds(d, distance)
    more = f"about {seeds} seeds" if seeds < MOST_SEEDS else f"more than {MOST_SEEDS} seeds"
    return f"{more} would decide, here are {d.seeds}"


def judged(found: Iterable[tuple[str, float, Difference | None]], rule: Rule) -> Iterator[Check]:
    """Judge a difference at each place where both methods finished, given in points and, if known, with its interval.

    Without an interval nothing is decided: it was not kept which predictions were right.
    """
    for place, points, difference in found:
        if difference is not None:
            yield rule(place, difference)
        elif math.isfinite(points):
            told = f"{place}: {signed(points)}, no interval: which predictions were right was not kept"
            yield Check(told, "not decided")


def _samples(difference: Difference, times: float) -> float:
    """Return how many test predictions of each seed would make an interval so many times shorter."""
    # that of rare events shrinks with their number, others with its square root
    return difference.predictions / difference.seeds * (times if difference.rare else times**2)


def _seeds(difference: Difference, distance: float) -> int:
    """Return how many seeds would make the interval as short as that; what test samples add to it stays."""
    from scipy.special import stdtrit

    for seeds in range(difference.seeds + 1, MOST_SEEDS):
        reach = stdtrit(seeds - 1, (1 + CONFIDENCE) / 2) * (difference.deviation or 0.0) / math.sqrt(seeds)
        if math.hypot(reach, difference.tested or 0.0) <= distance:
            return seeds
    return MOST_SEEDS


def _p(p: float) -> str:
    # smaller ones are 0 to a computer
    return f"{p:.2g}" if p >= 1e-300 else "< 1e-300"


def _rounded(count: float) -> str:
    """Return a count with two digits that mean something."""
    digits = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return f"{math.ceil(count / digits) * digits:,}"
