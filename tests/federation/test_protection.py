"""What sites bring with differential privacy: clipped, whole, exact in the ring, and the same again from a seed."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from securedfl.designs import best
from securedfl.federation.bringing import Bringing
from securedfl.federation.budget.account import epsilon_by_round, fewest, spent
from securedfl.federation.budget.protection import protect, rounded, site_steps, whole_steps, with_central_noise
from securedfl.federation.budget.rules import affordable, weigh
from securedfl.federation.budget.task import SiteChance, private_steps
from securedfl.network.core.entries import Abandon, Begin, Commit, Settings, Void
from securedfl.network.core.messages import Result
from securedfl.network.core.state import Rules, State, reduce
from securedfl.privacy.budget.plan import Plan, settled
from securedfl.protocols import InsecureSeededDraw, by_name
from securedfl.protocols.noise import bound_of, skellam
from securedfl.simulation import run

SITE = settled(
    Plan(
        unit="site",
        noise="distributed",
        clip=0.5,
        noise_multiplier=2.0,
        delta=1e-3,
        peers=9,
        collusion=1,
        rounds=10,
        size=300,
        units=9,
    ),
    epsilon=None,
    capacity=2**30 - 1,
)
RECORD = settled(replace(SITE, unit="record", units=500, sampling=0.1, scale=0.01), epsilon=None, capacity=2**30 - 1)


def keys(name):
    return InsecureSeededDraw(0, peer=name).seed


@settings(deadline=None, max_examples=60)
@given(
    arrays(np.float32, 40, elements=st.floats(-1e4, 1e4, width=32)),
    st.sampled_from([1.0, 17.0, 1000.0]),
    st.sampled_from([2.0**-12, 0.5]),
)
def test_a_site_in_whole_steps_is_never_longer_than_the_clip(vector, most, grid):
    steps, _ = site_steps(vector, most, grid)
    assert (steps == np.rint(steps)).all()
    assert sum(int(step) ** 2 for step in steps) <= most**2
    # no other direction, up to rounding
    assert (np.sign(steps) * np.sign(vector) >= 0).all()


def test_a_short_difference_is_only_rounded():
    vector = np.linspace(-0.01, 0.01, 300, dtype=np.float32)
    steps, clipped = site_steps(vector, SITE.clip_steps, SITE.grid)
    assert not clipped
    np.testing.assert_allclose(steps * SITE.grid, vector, atol=SITE.grid / 2)


def test_rounding_at_random_has_the_right_mean():
    values = np.full(200_000, 2.3)
    done = rounded(values, b"k" * 32)
    assert set(np.unique(done)) == {2.0, 3.0}
    assert done.mean() == pytest.approx(2.3, abs=0.01)


def test_records_are_cut_at_the_reach_and_moved_by_at_most_a_step():
    vector = np.full(300, 0.3 * RECORD.grid, dtype=np.float32)
    vector[0] = 10 * RECORD.reach * RECORD.grid
    steps, clipped = whole_steps(vector, RECORD, keys(1))
    assert clipped == 1
    assert steps[0] <= RECORD.reach
    assert set(steps[1:]) <= {0.0, 1.0}


@pytest.mark.parametrize("plan", [SITE, RECORD], ids=["site", "record"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_brings_nothing_but_noise(plan, bad, caplog):
    """An error would tell the others about the data."""
    vector = np.zeros(300, dtype=np.float32)
    vector[3] = bad
    noise = protect(vector, plan, keys(2))[0]
    assert np.isfinite(noise).all()
    assert "nothing but noise" in caplog.text


@pytest.mark.parametrize("plan", [SITE, RECORD], ids=["site", "record"])
@pytest.mark.parametrize("protocol", ["grouped", "shares"])
@pytest.mark.parametrize("bits", [16, 32])
def test_the_total_is_the_exact_sum_of_whole_numbers(plan, protocol, bits):
    """Behind masks, in field and ring, with values at the end of the range: nothing wraps, nothing is rounded."""
    plan = settled(replace(plan, size=40, sampling=1.0), epsilon=None, capacity=(2**bits - 1) // 4)
    averaging = by_name(protocol).on(best(9, 3, 0), bits=bits, range=plan.range)
    bring = Bringing(averaging=averaging, dtype="float32", plan=plan)
    base = np.zeros(40, dtype=np.float32)
    huge = np.full(40, 1e6, dtype=np.float32)
    brought = [bring(huge * (-1) ** k, base, draw=InsecureSeededDraw(0, peer=k), keys=keys(k)) for k in range(9)]
    # and the largest noise that there is
    extreme = plan.grid * (math.floor(plan.reach) + bound_of(plan.variance))
    vectors = [one.vector for one in brought[:8]] + [np.full(40, extreme, dtype=np.float32)]
    steps = [vector / plan.grid for vector in vectors]
    assert all((step == np.rint(step)).all() for step in steps)
    total = sum(step.astype(np.int64) for step in steps)
    found = run(averaging, vectors).average.astype(np.float64) * 9 / plan.grid
    assert (np.rint(found) == total).all()


def test_each_site_adds_its_part_of_the_noise():
    drawn = [protect(np.zeros(300, dtype=np.float32), SITE, keys(peer))[0] / SITE.grid for peer in range(200)]
    assert np.var(drawn) == pytest.approx(SITE.variance, rel=0.05)
    assert 8 * SITE.variance == pytest.approx((2.0 * SITE.clip_steps) ** 2)
    np.testing.assert_array_equal(drawn[0], skellam(SITE.variance)(300, keys(0)()))


@pytest.mark.parametrize(("noise", "times"), [("central", 1.0), ("distributed", math.sqrt(9 / 7)), ("local", 3.0)])
def test_the_mean_of_all_sites_has_the_noise_that_is_promised(noise, times):
    """As runs compute it: what each of nine sites brings, two of whom may collude, against a server that all trust."""
    learning_rate, size = 2.0, 20_000
    alone = noise == "local"
    plan = settled(
        replace(
            RECORD,
            noise=noise,
            collusion=2,
            size=size,
            scale=1.0 if alone else learning_rate * 9 / (RECORD.sampling * RECORD.units),
        ),
        epsilon=None,
        capacity=None if alone else 2**31 - 1,
    )
    nothing = np.zeros(size, dtype=np.float32)
    if alone:
        steps, chance = private_steps(plan, seed=5), SiteChance(plan, 5)
        brought = [learning_rate * chance.noisy(nothing, k, 1, 0) / steps.expected for k in range(9)]
    else:
        brought = [protect(nothing, plan, keys(k))[0] for k in range(9)]
    mean = with_central_noise(np.mean(brought, axis=0), plan, keys(9))
    expected = learning_rate * plan.clip * plan.noise_multiplier * times / (plan.sampling * plan.units)
    # the standard error of a deviation over so many numbers is half a percent
    assert mean.std() == pytest.approx(expected, rel=0.025)
    assert plan.noise_in_mean * plan.clip * learning_rate == pytest.approx(expected)


def test_no_residual_is_kept_that_would_tell_of_data_in_another_round():
    averaging = by_name("grouped").on(best(9, 3, 0), bits=16, range=SITE.range)
    bring = Bringing(averaging=averaging, dtype="float32", plan=SITE)
    w, base = np.ones(300, dtype=np.float32), np.zeros(300, dtype=np.float32)
    assert bring(w, base, draw=InsecureSeededDraw(0, peer=0)).residual is None


def test_secret_noise_is_never_the_same_twice():
    averaging = by_name("grouped").on(best(9, 3, 0), range=SITE.range)
    bring = Bringing(averaging=averaging, dtype="float32", plan=SITE)
    w, base = np.ones(300, dtype=np.float32), np.zeros(300, dtype=np.float32)
    first, second = (bring(w, base, draw=InsecureSeededDraw(0, peer=0)).vector for _ in range(2))
    assert not np.array_equal(first, second)


def test_round_zero_and_sums_that_were_never_opened_cost_nothing():
    everybody = tuple(range(9))
    assert spent({0: [everybody], 1: [], 2: [everybody]}) == {9: 1}
    by_round = epsilon_by_round(SITE, {0: [everybody], 1: [everybody], 2: [everybody[:5]]})
    assert by_round[0] == 0
    assert by_round[1] == SITE.epsilon({9: 1})
    # fewer members, less noise
    assert by_round[2] == SITE.epsilon({9: 1, 5: 1}) > SITE.epsilon({9: 2})


@pytest.mark.parametrize(
    ("sums", "left"),
    [([range(9)], 9), ([range(9), range(9)], 9), ([range(9), range(8)], 1), ([range(6), range(3, 9)], 3)],
)
def test_a_second_sum_over_others_leaves_the_noise_of_few(sums, left):
    assert fewest(sums) == left
    tuples = [tuple(each) for each in sums]
    assert all(fewest(order) == left for order in itertools.permutations(tuples))


@given(
    st.lists(st.lists(st.sets(st.integers(0, 4), min_size=2), min_size=1, max_size=2), max_size=8), st.integers(1, 9)
)
@settings(max_examples=40, deadline=None)
def test_what_was_spent_is_the_same_however_little_of_the_past_the_log_keeps(rounds, window):
    """The state forgets members of old rounds, and keeps what counts of them."""
    rules, all_five = Rules(window=window, weigh=weigh), tuple(range(5))
    state = State("run", (), Settings(rounds=20), length=1, model=Result(0, 0, b"first"))
    opened: dict[int, list[tuple[int, ...]]] = {}
    for round, attempts in enumerate(rounds):
        for attempt, members in enumerate(attempts):
            begin = Begin(round, attempt, tuple(sorted(members)))
            for entry in (begin, Commit(round, attempt), Abandon(round, attempt)):
                state = reduce(state, entry, rules)
            opened.setdefault(round, []).append(begin.members)
        state = reduce(state, Void(round), rules)
    opened[len(rounds)] = [all_five]
    limit = SITE.epsilon(spent(opened))
    assert affordable(replace(SITE, limit=limit), state, all_five)
    if limit and not math.isinf(limit):
        assert not affordable(replace(SITE, limit=limit * 0.999), state, all_five)


def test_what_no_float_holds_in_grid_steps_brings_nothing():
    steps, clipped = site_steps(np.array([1e308, 1.0]), most=100.0, grid=2.0**-10)
    assert not steps.any()
    assert clipped == 1
