"""Epsilon against published values, against our table, and Skellam's curve against exact privacy losses."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from securedfl.privacy.budget.accountant import epsilon_of, loss_epsilon
from securedfl.privacy.budget.skellam import HIGHEST, ORDERS, Shift, divergences, gaussian, sampled
from securedfl.protocols.noise import UNIT, bound_of, probabilities

BATCH = 2048 / 62_985


@pytest.mark.parametrize(("honest", "renyi", "loss"), [(7, 2.02, 1.82), (9, 1.68, 1.52), (5, 2.65, 2.38)])
def test_our_table_of_records(honest, renyi, loss):
    multiplier = 1.5 * math.sqrt(honest / 7)
    assert epsilon_of([(sampled(gaussian(multiplier), BATCH), 308)], 1e-5) == pytest.approx(renyi, abs=0.006)
    assert loss_epsilon(multiplier, BATCH, 308, 1e-5) == pytest.approx(loss, abs=0.006)


def test_our_table_of_sites():
    assert epsilon_of([(sampled(gaussian(5.0), 1.0), 50)], 1e-5) == pytest.approx(7.1, abs=0.05)
    assert loss_epsilon(5.0, 1.0, 50, 1e-5) == pytest.approx(6.6, abs=0.05)


@pytest.mark.parametrize(("multiplier", "rate", "steps"), [(1.1, 0.004, 14_000), (1.3, 0.01, 1000), (4.0, 1.0, 30)])
def test_as_the_accountant_itself_at_the_same_orders(multiplier, rate, steps):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    theirs = RdpAccountant(ORDERS.tolist()).compose(event, steps).get_epsilon(1e-5)
    assert epsilon_of([(sampled(gaussian(multiplier), rate), steps)], 1e-5) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "published"),
    [
        # Abadi et al., "Deep Learning with Differential Privacy" (2016), section 3.2
        (4.0, 0.01, 10_000, 1.26),
        # the tutorial of TensorFlow Privacy: 60,000 records, batches of 250, 15 epochs
        (1.3, 250 / 60_000, 3600, 1.18),
    ],
)
def test_published_values(multiplier, rate, steps, published):
    """Both were published with the first conversion of Rényi divergences, which is looser than today's."""
    curve = steps * sampled(gaussian(multiplier), rate)
    first = float((curve + math.log(1e5) / (ORDERS - 1)).min())
    assert first == pytest.approx(published, abs=0.01)
    assert epsilon_of([(curve, 1)], 1e-5) < first


def exact(variance: float, shift: int, order: int) -> float:
    """The Rényi divergence of one number with Skellam noise and one without the shift, term by term."""
    bound = bound_of(variance)
    half = np.array([weight / 2**UNIT for weight in probabilities(variance, bound)])
    weights = np.concatenate([half[:0:-1], half])
    p, q = weights[: len(weights) - shift], weights[shift:]
    logs = order * np.log(p) - (order - 1) * np.log(q)
    largest = logs.max()
    return float((largest + np.log(np.exp(logs - largest).sum())) / (order - 1))


@pytest.mark.parametrize("variance", [20.0, 500.0, 40_000.0])
@pytest.mark.parametrize("shift", [1, 3, 10])
def test_skellams_curve_bounds_the_exact_divergence_and_is_near(variance, shift):
    curve = divergences(variance, Shift(shift, shift))
    for order in (2, 3, 8, 16):
        true = exact(variance, shift, order)
        assert true <= curve[order - 2] * (1 + 1e-9)
        if variance >= 500:
            assert curve[order - 2] <= 1.05 * true


def test_epsilon_of_skellam_noise_bounds_the_exact_hockey_stick():
    """One number, sampled with probability q, once: delta at the epsilon we state is at most the delta we state."""
    variance, shift, rate, delta = 400.0, 20, 0.3, 1e-5
    epsilon = epsilon_of([(sampled(divergences(variance, Shift(shift, shift)), rate), 1)], delta)
    bound = bound_of(variance)
    half = np.array([weight / 2**UNIT for weight in probabilities(variance, bound)])
    q = np.concatenate([half[:0:-1], half, np.zeros(shift)])
    p = np.concatenate([np.zeros(shift), half[:0:-1], half])
    mixed = (1 - rate) * q + rate * p
    forth = np.maximum(mixed - math.exp(epsilon) * q, 0).sum()
    back = np.maximum(q - math.exp(epsilon) * mixed, 0).sum()
    assert max(forth, back) <= delta
    # and it is no gross overstatement: at three quarters of it the promise is broken
    assert np.maximum(mixed - math.exp(0.75 * epsilon) * q, 0).sum() > delta


def test_sampling_everything_amplifies_nothing():
    curve = divergences(400.0, Shift(1.0, 1.0))
    assert np.allclose(sampled(curve, 1.0), curve[ORDERS - 2])
    assert np.allclose(sampled(curve, 1 - 1e-12), curve[ORDERS - 2], rtol=1e-6)
    assert (sampled(curve, 0.01) < curve[ORDERS - 2]).all()
    assert len(curve) == HIGHEST - 1


def test_rounding_at_random_moves_no_more_than_stated():
    random, size, rare = np.random.default_rng(0), 400, 1e-2
    x = random.standard_normal(size)
    x *= 30 / np.linalg.norm(x)
    stated = Shift.rounded(30.0, size, rare)
    base, over = 100 * random.standard_normal(size), 0
    for _ in range(2000):
        uniform = random.random(size)
        moved = np.floor(base + x + uniform) - np.floor(base + uniform)
        over += float(np.linalg.norm(moved)) > stated.l2
        assert np.abs(moved).sum() <= np.linalg.norm(moved) ** 2 + 1e-9
    assert over <= 2000 * rare


def test_nothing_spent_is_no_epsilon():
    assert epsilon_of([], 1e-5) == 0.0
    assert epsilon_of([(gaussian(1.0)[ORDERS - 2], 1)], 0.0) == math.inf
