"""Skellam noise: the tables against exact probabilities, draws against the tables, and sums against their law."""

from __future__ import annotations

import hashlib
import math

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2

from securedfl.errors import ConfigError
from securedfl.protocols.noise import _LEFT, CELL_BITS, TAIL, UNIT, bound_of, distance, probabilities, skellam


def key(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


@pytest.mark.parametrize("variance", [0.3, 2.5, 25.0, 400.0])
def test_probabilities_are_those_of_bessel_functions(variance):
    bound = bound_of(variance)
    found = probabilities(variance, bound)
    with mpmath.workdps(60):
        for k in {0, 1, 2, bound // 2, bound}:
            exact = mpmath.exp(-variance) * mpmath.besseli(k, variance) * 2**UNIT
            # what is cut off goes to the rest; each step rounds down by less than a unit
            assert abs(found[k] - exact) < 2 * TAIL * exact + 2 * bound + 2
    assert 0 <= 2**UNIT - found[0] - 2 * sum(found[1:]) < 2 * bound + 2


def test_the_tail_is_what_the_bound_says():
    variance = 7.0
    bound = bound_of(variance)
    with mpmath.workdps(60):
        tail = 2 * mpmath.fsum(mpmath.exp(-variance) * mpmath.besseli(k, variance) for k in range(bound + 1, 3 * bound))
    assert 0 < tail < TAIL


@pytest.mark.parametrize("variance", [0.3, 25.0, 3000.0])
def test_the_tables_hold_the_probabilities_exactly(variance):
    """First table and second table together, in whole numbers, give every probability to 2^-120."""
    noise, bound = skellam(variance), bound_of(variance)
    half = probabilities(variance, bound)
    cells = np.bincount(noise._cells[noise._cells != _LEFT] + bound, minlength=2 * bound + 1)
    left = int((noise._cells == _LEFT).sum())
    slots = len(noise._values)
    second = [0] * (2 * bound + 1)
    size = 2**128 // slots
    for own, other, high, low in zip(
        noise._values.tolist(), noise._others.tolist(), noise._high.tolist(), noise._low.tolist(), strict=True
    ):
        limit = (high << 64) + low
        second[own + bound] += limit
        second[other + bound] += size - limit
    for value in range(-bound, bound + 1):
        made = (int(cells[value + bound]) << (UNIT - CELL_BITS)) + (second[value + bound] * left << (64 - CELL_BITS))
        assert abs(made - half[abs(value)]) < 2 ** (UNIT - 110)


@pytest.mark.parametrize("variance", [0.3, 40.0, 20_000.0])
def test_draws_pass_a_chi_square_test(variance):
    draws = 400_000
    noise, bound = skellam(variance), bound_of(variance)
    drawn = noise(draws, key(f"chi-square {variance}"))
    expected = np.array([weight / 2**UNIT for weight in probabilities(variance, bound)]) * draws
    whole = np.concatenate([expected[:0:-1], expected])
    seen = np.bincount(drawn + bound, minlength=2 * bound + 1)
    # values that are expected often enough each, in bins of at least 50; the rest together
    edges, total = [0], 0.0
    for place, count in enumerate(whole):
        total += count
        if total >= 50:
            edges.append(place + 1)
            total = 0.0
    edges = edges[:-1]
    statistic = float(
        ((np.add.reduceat(seen, edges) - np.add.reduceat(whole, edges)) ** 2 / np.add.reduceat(whole, edges)).sum()
    )
    assert 1e-6 < chi2.sf(statistic, len(edges) - 1) < 1 - 1e-6


def test_the_noise_of_a_total_has_the_variance_of_its_parts():
    total = sum(skellam(30.0)(200_000, key(f"peer {peer}")).astype(np.int64) for peer in range(7))
    assert abs(total.var() / 210 - 1) < 0.02
    assert abs(total.mean()) < 5 * math.sqrt(210 / 200_000)


def test_draws_depend_on_the_key_alone():
    noise = skellam(100.0)
    assert (noise(5000, key("a")) == noise(5000, key("a"))).all()
    assert (noise(5000, key("a")) != noise(5000, key("b"))).mean() > 0.9


def test_the_second_table_never_reads_the_words_of_the_first():
    """Numbers at the end of a block must not depend on how many words the second table took before."""
    noise = skellam(1e6)
    assert noise.left > 0.001
    long, short = noise(70_000, key("c")), noise(40_000, key("c"))
    same = (long[:40_000] == short).mean()
    # only what the second table gave may differ, because its words begin behind those of the first
    assert same > 1 - 2 * noise.left


def test_too_much_variance_is_refused():
    with pytest.raises(ConfigError, match="grid steps squared"):
        skellam(1e12)


def test_a_whole_run_is_next_to_true_skellam_numbers():
    assert distance(1.2e6 * 9 * 1000) < 1e-18
