"""Epsilon from what was spent, by Google's dp-accounting: Rényi divergences added up, or privacy loss distributions."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from securedfl.errors import needing
from securedfl.privacy.budget.skellam import ORDERS, Curve

EXTRA = "dp"


def epsilon_of(spent: Iterable[tuple[Curve, int]], delta: float) -> float:
    """Return epsilon after mechanisms with these divergences at `ORDERS`, each so many times."""
    total = np.zeros(len(ORDERS))
    for curve, times in spent:
        total += times * curve
    if not total.any():
        return 0.0
    if delta <= 0:
        return math.inf
    with needing("differential privacy", EXTRA):
        from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
    found, _ = compute_epsilon(ORDERS.tolist(), total.tolist(), delta)
    return float(found)


def loss_epsilon(noise_multiplier: float, sampling: float, steps: int, delta: float) -> float:
    """Return epsilon of Gaussian noise by privacy loss distributions: tighter, and for comparison only.

    Skellam noise has no such distribution that holds for every direction of a shift, so that certificates use Rényi
    divergences.
    """
    with needing("differential privacy", EXTRA):
        import dp_accounting
        from dp_accounting import pld
    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(noise_multiplier)
    if sampling < 1:
        event = dp_accounting.PoissonSampledDpEvent(sampling, event)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(event, steps)
    return float(accountant.get_epsilon(delta))
