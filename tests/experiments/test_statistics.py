"""Paired tests, intervals and verdicts, against scipy and against formulas."""

import math

import numpy as np
import pytest
from scipy import stats

from securedfl.experiments.statistics.judging import above, below, samples_needed, within
from securedfl.experiments.statistics.paired import (
    Difference,
    Pair,
    Scored,
    bonett_price,
    compare,
    contrast,
    mcnemar,
)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (0, 5), (3, 3), (10, 25), (59, 6), (400, 460), (3000, 3300)])
def test_mcnemar_is_the_exact_binomial_test(b, c):
    expected = stats.binomtest(min(b, c), b + c).pvalue if b + c else 1.0
    assert mcnemar(b, c) == mcnemar(c, b) == pytest.approx(expected, rel=1e-9)


def test_the_interval_of_independent_samples_is_scipys_bootstrap():
    random = np.random.default_rng(1)
    first, second = random.random(2000) < 0.9, random.random(2000) < 0.87
    found = compare([Pair.of(first, second, np.arange(2000))])
    each = 100 * (first.astype(float) - second.astype(float))
    known = stats.bootstrap((each,), np.mean, method="percentile", n_resamples=4000, rng=2).confidence_interval
    assert found.points == pytest.approx(each.mean())
    assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=0.06 * found.half)
    assert (found.only_first, found.only_second) == (int((first & ~second).sum()), int((second & ~first).sum()))
    assert found.p == pytest.approx(stats.binomtest(found.only_first, found.only_first + found.only_second).pvalue)


def test_users_that_are_right_or_wrong_as_a_whole_count_once():
    users = np.repeat(np.arange(50), 40)
    first = np.repeat(np.random.default_rng(3).random(50) < 0.5, 40)
    second = np.zeros(2000, dtype=bool)
    whole = compare([Pair.of(first, second, users)])
    apart = compare([Pair.of(first, second, np.arange(2000))])
    assert whole.points == apart.points
    assert whole.half / apart.half == pytest.approx(math.sqrt(40), rel=0.1)
    share = first.mean()
    assert whole.half == pytest.approx(100 * 1.96 * math.sqrt(share * (1 - share) / 50), rel=0.1)


def test_models_that_never_differ_may_differ_elsewhere():
    same = np.random.default_rng(6).random(682) < 0.97
    found = compare([Pair.of(same, same, np.arange(682))])
    # (b + 1) / (n + 2) for both sides, as Bonett and Price have it
    half = 100 * 1.96 * math.sqrt(2 / 684 / 684)
    assert (found.points, found.low, found.high) == pytest.approx((0.0, -half, half), rel=1e-3)
    # the rule of three: with 95 % at most 3 in n
    assert found.high > 0.9 * 100 * 3 / 682
    assert within("here", found, 0.02).verdict == "not decided"


def test_rare_differences_are_covered():
    random, covered, runs = np.random.default_rng(7), 0, 200
    for _ in range(runs):
        drawn = random.random(600)
        # 0.4 % and 0.2 % of all predictions are right with one model only
        first, second = drawn < 0.994, (drawn < 0.990) | ((drawn >= 0.994) & (drawn < 0.996))
        found = compare([Pair.of(first, second, np.arange(600))])
        covered += found.low <= 0.2 <= found.high
    assert covered >= 0.93 * runs


def test_samples_with_several_predictions():
    assert bonett_price(50, 100, 5000, 100) == bonett_price(1, 2, 100, 100)
    first = np.array([1, 1, 0, 1, 0, 0], dtype=bool)
    second = np.array([1, 0, 0, 0, 0, 1], dtype=bool)
    pair = Pair.of(first, second, np.array([7, 9, 7]))
    assert (pair.gained.tolist(), pair.count.tolist()) == ([0, 1], [4, 2])
    assert pair.difference == pytest.approx(1 / 6)
    with pytest.raises(ValueError, match="same test samples"):
        Pair.of(first, second[:5], np.arange(3))


def test_seeds_and_users_both_widen_the_interval():
    random = np.random.default_rng(4)
    users, count = np.arange(5000), 5000
    base = random.random((3, count)) < 0.9
    lost = [base[s] & (random.random(count) > share) for s, share in enumerate((0.01, 0.03, 0.05))]
    pairs = [Pair.of(lost[s], base[s], users) for s in range(3)]
    found = compare(pairs)
    each = np.array([pair.difference for pair in pairs])
    within_seeds = [pair.gained.std() ** 2 / count for pair in pairs]
    error = 100 * math.sqrt((each.var(ddof=1) + np.mean(within_seeds)) / 3)
    assert found.points == pytest.approx(100 * each.mean())
    # three seeds give few different means, so that the ends are coarse
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.15)
    assert found.seeds == 3


def test_different_test_samples_are_not_paired():
    random = np.random.default_rng(5)
    one, other = (Scored.of(random.random(n) < p, np.arange(n)) for n, p in ((3000, 0.8), (4000, 0.7)))
    found = contrast([one], [other])
    shares = [scored.right.mean() for scored in (one, other)]
    error = math.sqrt(shares[0] * (1 - shares[0]) / 3000 + shares[1] * (1 - shares[1]) / 4000)
    assert found.points == pytest.approx(100 * (shares[0] - shares[1]))
    assert found.half == pytest.approx(196 * error, rel=0.07)
    assert found.p is None


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
