"""Plans: noise from epsilon and back, what is refused and what would fit, who counts, and room in the ring."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from securedfl.errors import ConfigError, PrivacyError
from securedfl.privacy.budget import compare, words
from securedfl.privacy.budget.plan import Plan, most_rounds, settled, with_grid
from securedfl.protocols.noise import bound_of

RING = 2**31 - 1
RECORDS = Plan(
    unit="record",
    noise="distributed",
    clip=1.0,
    noise_multiplier=1.5,
    sampling=2048 / 62_985,
    delta=1e-5,
    peers=9,
    collusion=2,
    rounds=308,
    size=1_206_590,
    units=62_985,
    scale=0.0022,
)
SITES = Plan(
    unit="site",
    noise="distributed",
    clip=0.7,
    noise_multiplier=5.0,
    delta=1e-5,
    peers=9,
    collusion=2,
    rounds=50,
    size=1_206_590,
    units=9,
)


def made(plan: Plan, **options) -> Plan:
    return settled(plan, **{"epsilon": None, "capacity": RING, **options})


@pytest.mark.parametrize(("members", "epsilon"), [(9, 2.02), (11, 1.68), (7, 2.65)])
def test_our_table_holds_for_whole_numbers_on_the_grid(members, epsilon):
    """Skellam instead of Gaussian noise, random rounding and the sampler's distance cost less than a percent."""
    assert made(RECORDS).epsilon({members: 308}) == pytest.approx(epsilon, rel=0.01)


def test_the_table_of_sites_and_that_nine_are_too_few():
    plan = made(SITES)
    assert plan.planned == pytest.approx(7.09, abs=0.01)
    assert replace(plan, noise="central").noise_in_mean == pytest.approx(0.56, abs=0.01)
    assert plan.signal < 0.1
    assert "9 sites are too few" in words.sentence(plan, 0.0)
    many = made(replace(SITES, peers=5000, units=5000, collusion=100, size=100_000))
    assert many.signal > 1
    assert "too few" not in words.sentence(many, 0.0)


def test_distributed_noise_is_the_root_of_the_honest_smaller_than_local():
    found = {case.plan.noise: case.plan for case in compare.cases(made(RECORDS))}
    ratio = found["local"].noise_in_mean / found["distributed"].noise_in_mean
    assert ratio == pytest.approx(math.sqrt(7))
    assert found["local"].planned == pytest.approx(found["distributed"].planned, rel=0.01)
    assert found["central"].planned == pytest.approx(found["distributed"].planned, rel=0.01)
    # what colluders add is in the mean too, but does not count
    assert found["distributed"].noise_in_mean / found["central"].noise_in_mean == pytest.approx(math.sqrt(9 / 7))


def test_noise_found_for_epsilon_is_the_least():
    plan = made(replace(RECORDS, noise_multiplier=0.0), epsilon=2.0)
    assert 1.99 < plan.planned <= 2.0
    assert plan.limit == 2.0
    assert made(replace(plan, noise_multiplier=0.99 * plan.noise_multiplier)).planned > 2.0


def test_a_plan_over_budget_is_refused_with_what_fits():
    text = r"would spend epsilon 2.02 .* would fit: rounds = \d+ or noise_multiplier = "
    with pytest.raises(PrivacyError, match=text) as told:
        made(RECORDS, epsilon=1.5)
    rounds = int(str(told.value).split("rounds = ")[1].split()[0])
    assert made(replace(RECORDS, rounds=rounds)).epsilon({9: rounds}) <= 1.5
    multiplier = float(str(told.value).rsplit(" = ", 1)[1])
    assert made(replace(RECORDS, noise_multiplier=multiplier)).planned <= 1.5


def test_a_budget_that_the_first_round_exceeds_is_refused_even_if_it_may_stop():
    assert made(RECORDS, epsilon=1.5, over="stop").limit == 1.5
    with pytest.raises(PrivacyError, match="the first round alone"):
        made(RECORDS, epsilon=0.1, over="stop")


def test_rounds_that_fit_are_the_most():
    plan = made(RECORDS)
    rounds = most_rounds(plan, 1.5)
    assert plan.epsilon({9: rounds}) <= 1.5 < plan.epsilon({9: rounds + 2})


@pytest.mark.parametrize("delta", [1 / 62_985, 0.1])
def test_delta_is_below_one_over_records(delta):
    with pytest.raises(ConfigError, match="not below 1/62985"):
        made(replace(RECORDS, delta=delta))


def test_only_honest_noise_counts():
    plan = made(RECORDS)
    assert plan.epsilon({3: 1}) > plan.epsilon({9: 1})
    assert math.isinf(plan.epsilon({2: 1}))
    assert math.isinf(plan.epsilon({9: 10, 2: 1}))
    with pytest.raises(PrivacyError, match="nobody's noise would be left"):
        made(replace(RECORDS, collusion=9))
    assert made(replace(RECORDS, noise="local", collusion=8)).planned < 3


@pytest.mark.parametrize("capacity", [RING, 2**15 - 1])
@pytest.mark.parametrize("plan", [SITES, replace(SITES, size=650), replace(RECORDS, size=650, units=1600, delta=1e-4)])
def test_the_largest_total_with_noise_fits_the_ring(plan, capacity):
    if plan.unit == "record" and capacity < RING:
        plan = replace(plan, sampling=0.01)
    chosen = with_grid(plan, capacity)
    largest = math.ceil(chosen.reach) + bound_of(chosen.variance)
    assert plan.peers * largest < capacity
    assert chosen.range / chosen.grid == largest
    assert math.log2(chosen.grid).is_integer()


def test_no_room_in_the_ring_is_told():
    with pytest.raises(ConfigError, match="more bits"):
        with_grid(replace(RECORDS, peers=60_000), 2**15 - 1)


@pytest.mark.parametrize(("missing", "given"), [("noise", 2.0), ("epsilon", None), ("rounds", 2.0), ("sampling", 2.0)])
def test_budget_finds_what_is_missing(missing, given):
    found = compare.solve(replace(RECORDS, size=10_000), epsilon=given, find=missing)
    assert found.planned <= (given or 2.1)
    assert found.planned > 1.9


def test_the_sentence_is_the_certificates():
    plan = made(replace(RECORDS, noise_multiplier=0.0), epsilon=2.0)
    assert words.sentence(plan, 0.0) == (
        "Any 2 of 9 peers learn only the total, and that total is (2, 1e-05)-differentially private for each record at "
        "the end of the run (so far (0, 1e-05))."
    )
    assert words.sentence(replace(plan, noise="local"), 1.5).startswith("Whoever colludes, what a site sends is")
    assert "For comparison only" in words.sentence(replace(plan, noise="central"), 0.0)
    assert words.pair(1.2341, 1e-5) == "(1.24, 1e-05)"
    assert words.pair(math.inf, 1e-5) == "(without any bound)"
