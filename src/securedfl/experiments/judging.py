"""What an interval says about a claim: it holds, it differs, or it is not decided, and how many samples would do it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from securedfl.experiments.results import Check, signed
from securedfl.sureness import Difference

Rule = Callable[[str, Difference], Check]
"""Judges a difference at a place."""


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
    """Judge the claim that a difference lies between two ends, by whether its whole interval does, or none of it."""
    d = difference
    sure = f"{place}: {signed(d.points)} [{signed(d.low)}, {signed(d.high)}]"
    sure += "" if d.seeds > 1 else ", one seed"
    sure += "" if d.p is None else f", McNemar p {d.p:.2g}"
    if least < d.low and d.high < most:
        return Check(sure, "holds")
    if d.high < least or most < d.low:
        return Check(sure, "differs")
    return Check(f"{sure}; {_needed(d, least, most)}", "not decided")


def samples_needed(difference: Difference, least: float, most: float) -> float:
    """Return how many test predictions would decide, if the difference stayed as it is; infinite at an end itself."""
    distance = min(abs(difference.points - end) for end in (least, most) if math.isfinite(end))
    return difference.predictions * (difference.half / distance) ** 2 if distance else math.inf


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


def _needed(difference: Difference, least: float, most: float) -> str:
    count = samples_needed(difference, least, most)
    if not math.isfinite(count):
        return "no number of samples would decide at exactly the limit"
    seeds = math.ceil(count * difference.seeds / difference.predictions)
    more = f" (of {seeds:,} seeds)" if difference.seeds > 1 else ""
    return f"about {_rounded(count)} test predictions{more} would decide, here are {difference.predictions:,}"


def _rounded(count: float) -> str:
    """Return a count with two digits that mean something."""
    digits = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return f"{math.ceil(count / digits) * digits:,}"
