"""Paired tests and intervals, against scipy, against formulas, and against simulated cases whose truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from securedfl.sureness import ByUser, Pair, bonett_price, compare, contrast, mcnemar, newcombe, wilson


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
    share = first.mean()
    # no narrower than Student's interval of 50 users, and little wider: so few are known badly
    student = 100 * stats.t.ppf(0.975, 49) * math.sqrt(share * (1 - share) / 49)
    assert 0.97 * student <= whole.half <= 1.25 * student
    assert whole.half > math.sqrt(40) * apart.half


def test_models_that_never_differ_may_differ_elsewhere():
    same = np.random.default_rng(6).random(682) < 0.97
    found = compare([Pair.of(same, same, np.arange(682))])
    # (b + 1) / (n + 2) for both sides, as Bonett and Price have it
    half = 100 * 1.96 * math.sqrt(2 / 684 / 684)
    assert (found.points, found.low, found.high) == pytest.approx((0.0, -half, half), rel=1e-3)
    # the rule of three: with 95 % at most 3 in n
    assert found.high > 0.9 * 100 * 3 / 682


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
    assert (pair.gained.amount.tolist(), pair.gained.count.tolist()) == ([0, 1], [4, 2])
    assert pair.gained.share == pytest.approx(1 / 6)
    with pytest.raises(ValueError, match="same test samples"):
        Pair.of(first, second[:5], np.arange(3))


def test_predictions_of_a_sample_that_differ_by_themselves_count_by_themselves():
    """Sequences of 50 predictions: where one in a hundred differs, whoever is the user, they tell as much as 40,000."""
    random = np.random.default_rng(12)
    drawn = random.random(40_000)
    first, second = drawn < 0.505, (drawn < 0.5) | (drawn > 0.995)
    found = compare([Pair.of(first, second, np.arange(800) % 80)])
    assert found.p is None
    alone = 196 * math.sqrt(0.01 / 40_000)
    assert found.half == pytest.approx(alone, rel=0.25)
    # whole sequences that differ tell as much as 800
    whole = np.repeat(drawn[:800] < 0.01, 50)
    assert compare([Pair.of(whole, np.zeros(40_000, bool), np.arange(800))]).half > 3 * alone


def test_of_few_predictions_that_differ_nobody_knows_whether_they_go_together():
    same = np.ones(40_000, dtype=bool)
    found = compare([Pair.of(same, same, np.arange(800))])
    assert (found.rare, found.half) == (True, pytest.approx(100 * 1.96 * math.sqrt(2) / 4002, rel=1e-3))
    # with one prediction for each sample there is nothing that could go together
    assert compare([Pair.of(same, same, np.arange(40_000))]).half == pytest.approx(found.half / 10, rel=1e-2)


def test_several_seeds_have_the_quantiles_of_a_sum_and_nothing_is_drawn(monkeypatch):
    random = np.random.default_rng(13)
    base = random.random(3000) < 0.9
    pairs = [Pair.of(base & (random.random(3000) > share), base, np.arange(3000)) for share in (0.004, 0.02)]
    found = compare(pairs)
    drawn = random.normal(0, found.tested / 1.96, 1_000_000) + found.deviation / math.sqrt(2) * random.standard_t(
        1, 1_000_000
    )
    assert (found.low, found.high) == pytest.approx(found.points + np.quantile(drawn, [0.025, 0.975]), rel=0.05)
    ends = []
    for seed in range(8):
        monkeypatch.setattr("securedfl.sureness.SEED", seed)
        ends.append(compare(pairs).high)
    # other draws of users change little
    assert max(ends) - min(ends) < 0.03 * found.half


def test_few_users_are_covered_as_promised(monkeypatch):
    monkeypatch.setattr("securedfl.sureness.REPLICATES", 400)
    random = np.random.default_rng(14)
    for users in (5, 9):
        found = 0
        for _ in range(300):
            gains = random.normal(0.03, 0.06, users)[np.repeat(np.arange(users), 200)]
            drawn = random.random(users * 200)
            pair = Pair.of(drawn < 0.5 + gains, drawn < 0.5, np.repeat(np.arange(users), 200))
            interval = compare([pair])
            found += interval.low <= 3 <= interval.high
        assert 0.91 <= found / 300 <= 0.99, users


def test_few_seeds_are_known_as_student_says():
    random, count = np.random.default_rng(4), 5000
    base = random.random((3, count)) < 0.9
    lost = [base[s] & (random.random(count) > share) for s, share in enumerate((0.01, 0.03, 0.05))]
    # every seed has test samples of its own
    at = [np.arange(count) + s * count for s in range(3)]
    pairs = [Pair.of(lost[s], base[s], at[s], at[s]) for s in range(3)]
    found = compare(pairs)
    each = np.array([100 * pair.gained.share for pair in pairs])
    known = stats.t.interval(0.95, 2, loc=each.mean(), scale=stats.sem(each))
    assert found.points == pytest.approx(each.mean())
    # users add little here
    assert (found.low, found.high) == pytest.approx(known, abs=0.15 * found.half)
    assert (found.seeds, found.users, found.predictions) == (3, 3 * count, 3 * count)
    assert found.p == mcnemar(found.only_first, found.only_second)


def test_seeds_on_the_same_samples_tell_no_more_about_other_samples():
    """The same models ten times over are as sure as once; ten times as many samples would be surer."""
    random = np.random.default_rng(8)
    first, second = random.random(400) < 0.9, random.random(400) < 0.8
    once = compare([Pair.of(first, second, np.arange(400))])
    again = compare([Pair.of(first, second, np.arange(400))] * 10)
    assert (again.points, again.users) == (pytest.approx(once.points), 400)
    assert again.half == pytest.approx(once.half, rel=0.05)
    assert again.p is None
    # rare differences, too: the closed form counts a sample once
    same = np.ones(700, dtype=bool)
    once, again = (compare([Pair.of(same, same, np.arange(700))] * times) for times in (1, 10))
    assert again.half == pytest.approx(once.half)
    # with samples of their own, ten seeds that find the same are surer
    apart = [Pair.of(first, second, np.arange(400) + 400 * s, np.arange(400) + 400 * s) for s in range(10)]
    assert compare(apart).half == pytest.approx(compare(apart[:1]).half / math.sqrt(10), rel=0.1)


def covered(*, told_apart):
    """Tell how often the true difference lies in the interval of eight seeds that share their test samples.

    For each of 40 users one model is better by a share of predictions of its own, whose mean is 3 %.
    """
    random, found, runs, seeds = np.random.default_rng(9), 0, 200, 8
    for _ in range(runs):
        drawn, gains = random.random(600), np.repeat(random.normal(0.03, 0.06, 40), 15)
        pairs = []
        for seed in range(seeds):
            first = 600 * seed if told_apart else 0
            samples = np.arange(600) + first
            # what a seed changes: a little for all samples
            better = drawn < 0.5 + gains + random.normal(0, 0.01)
            pairs.append(Pair.of(better, drawn < 0.5, samples // 15, samples))
        interval = compare(pairs)
        found += interval.low <= 3 <= interval.high
    return found / runs


def test_the_true_difference_is_covered_as_often_as_promised(monkeypatch):
    monkeypatch.setattr("securedfl.sureness.REPLICATES", 400)
    # 95 % of 200 runs, give or take twice 1.5 %, and a little less because users are few
    assert 0.90 <= covered(told_apart=False) <= 0.99
    # as if every seed had been tested on samples of its own: too sure
    assert covered(told_apart=True) < 0.8


@pytest.mark.parametrize(
    ("correct", "samples", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_newcombe_1998_prints_it(correct, samples, low, high):
    assert wilson(correct / samples, samples) == pytest.approx((low, high), abs=1e-4)


def test_newcombe_is_symmetric_and_wider_than_each_interval():
    low, high = newcombe(0.8, 0.6, 75)
    assert newcombe(0.6, 0.8, 75) == pytest.approx((-high, -low))
    assert 0 < low < 0.2 < high
    # Newcombe 1998, method 10, (a): 56 of 70 against 48 of 80 gives 0.0524 to 0.3339; equal samples lie near
    assert (low, high) == pytest.approx((0.0524, 0.3339), abs=0.01)


def test_flawless_models_may_err_elsewhere():
    one, other = (ByUser.of(np.ones(n, dtype=bool), np.arange(n)) for n in (700, 800))
    found = contrast([one], [other])
    low, high = newcombe(1.0, 1.0, 700, 800)
    assert (found.low, found.high) == pytest.approx((100 * low, 100 * high))
    assert found.low < -0.3 < 0.3 < found.high


def test_different_test_samples_are_not_paired():
    random = np.random.default_rng(5)
    one, other = (ByUser.of(random.random(n) < p, np.arange(n)) for n, p in ((3000, 0.8), (4000, 0.7)))
    found = contrast([one], [other])
    shares = [scored.amount.mean() for scored in (one, other)]
    error = math.sqrt(shares[0] * (1 - shares[0]) / 3000 + shares[1] * (1 - shares[1]) / 4000)
    assert found.points == pytest.approx(100 * (shares[0] - shares[1]))
    assert found.half == pytest.approx(196 * error, rel=0.07)
    assert found.p is None
