"""What an interval says about a claim."""

import math
from dataclasses import replace

import pytest

from securedfl.experiments.judging import above, below, needed, within
from securedfl.sureness import Difference


def difference(points, half, predictions=1000, seeds=1):
    known = {"seeds": seeds, "users": 10, "predictions": predictions * seeds, "tested": half}
    return Difference(points, points - half, points + half, **known, deviation=0.0 if seeds > 1 else None)


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
    for seeds, models in ((1, " for these models"), (2, "")):
        d = difference(points, half, seeds=seeds)
        rules = [within("here", d, 0.02), below("here", d), above("here", d)]
        told = tuple(verdict if verdict == "not decided" else verdict + models for verdict in verdicts)
        assert tuple(check.verdict for check in rules) == told


def test_so_many_samples_would_decide():
    d = difference(0.01, 0.1)
    shrunk = difference(0.01, 0.1 * math.sqrt(1000 / 100_000) * 0.999)
    assert within("x", d, 0.02).verdict == "not decided"
    assert within("x", shrunk, 0.02).verdict == "holds for these models"
    assert "about 100,000 test predictions would decide, here are 1,000" in within("x", d, 0.02).numbers
    assert "at exactly the limit" in needed(difference(0.02, 0.1), -0.02, 0.02)


def test_intervals_of_rare_differences_shrink_with_the_number_of_samples():
    d = replace(difference(0.01, 0.1), only_first=1, only_second=0)
    assert "about 10,000 test predictions would decide" in within("x", d, 0.02).numbers


def test_seeds_decide_only_what_test_samples_leave_open():
    """Student's factor falls with more seeds; what the choice of test samples adds does not."""
    d = replace(difference(-0.5, 2.0, seeds=2), deviation=0.2, tested=0.1)
    # 12.7, 4.3, 3.2 ... times the deviation, by the root of the seeds
    assert math.hypot(4.303 * 0.2 / math.sqrt(3), 0.1) > 0.5
    assert math.hypot(3.182 * 0.2 / math.sqrt(4), 0.1) < 0.5
    assert "about 4 seeds would decide, here are 2" in below("x", d).numbers
    told = below("x", replace(d, tested=1.0)).numbers
    assert "more seeds alone would not: it takes about 4,000 test predictions, here are 1,000" in told
    assert "more than 100 seeds would decide" in below("x", replace(d, deviation=50.0)).numbers


def test_a_p_that_is_too_small_for_a_computer_is_not_told_as_0():
    assert "McNemar p < 1e-300" in below("x", replace(difference(-0.5, 0.1), p=0.0)).numbers
