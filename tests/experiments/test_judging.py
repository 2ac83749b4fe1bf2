"""What an interval says about a claim."""

import math
from dataclasses import replace

import pytest

from securedfl.experiments.judging import above, below, samples_needed, within
from securedfl.sureness import Difference


def difference(points, half, predictions=1000):
    return Difference(points, points - half, points + half, seeds=1, users=10, predictions=predictions)


@pytest.mark.parametrize(
    ("points", "half", "verdicts"),
    [
        (0.0, 0.01, ("holds", "not decided", "not decided")),
        (0.0, 0.0, ("holds", "not decided", "not decided")),
        (-0.5, 0.1, ("differs", "holds", "differs")),
        (0.5, 0.1, ("differs", "differs", "holds")),
        (-0.01, 0.02, ("not decided", "not decided", "not decided")),
    ],
)
def test_verdicts_are_what_the_interval_says(points, half, verdicts):
    d = difference(points, half)
    rules = [within("here", d, 0.02), below("here", d), above("here", d)]
    assert tuple(check.verdict for check in rules) == verdicts


def test_so_many_samples_would_decide():
    d = difference(0.01, 0.1)
    needed = samples_needed(d, -0.02, 0.02)
    assert needed == pytest.approx(100_000)
    shrunk = difference(0.01, 0.1 * math.sqrt(1000 / needed) * 0.999)
    assert within("x", d, 0.02).verdict == "not decided"
    assert within("x", shrunk, 0.02).verdict == "holds"
    assert "about 100,000 test predictions would decide, here are 1,000" in within("x", d, 0.02).numbers
    assert math.isinf(samples_needed(difference(0.02, 0.1), -0.02, 0.02))


def test_over_several_seeds_it_is_said_how_many_of_them_would_decide():
    d = replace(difference(0.01, 0.1), seeds=2)
    assert "100,000 test predictions (of 200 seeds) would decide, here are 1,000" in within("x", d, 0.02).numbers
