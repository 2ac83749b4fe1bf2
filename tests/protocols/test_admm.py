"""The ADMM protocols against the paper's pseudo-code, its lemmas and the true mean."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from securedfl import Schedule, average
from securedfl.designs import Design, best
from securedfl.designs.algorithm2 import randomized
from securedfl.errors import ConfigError
from securedfl.protocols import DEFAULT_RHO, InsecureSeededDraw, by_name, paper
from securedfl.simulation import run

# (rho_0, decay, period) of the authors' experiments per number of iterations, and the MSE that they report
AUTHORS = {
    1: ((3, 1, 1), 6.5e-3),
    2: ((3, 3e-4, 1), 1.6e-9),
    3: ((7, 0.01, 1), 6.6e-12),
    4: ((70, 7e-6, 2), 3.7e-14),
    5: ((50, 7e-6, 3), 3.4e-16),
    6: ((100, 7e-6, 3), 3.9e-16),
    7: ((100, 7e-6, 4), 1.1e-16),
}


def seeded(seed: int = 0, round: int = 0):
    return lambda peer, offset: InsecureSeededDraw(seed, peer=peer, round=round, offset=offset)


def pseudo_code(w: np.ndarray, lam: np.ndarray, rho: Schedule, iterations: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Algorithm 1 line by line, for all peers at once: (z, lam) after every iteration."""
    z, states = np.zeros(w.shape[1:]), []
    for i in range(iterations):
        x = 1 / (2 + rho[i]) * (2 * w - lam + rho[i] * z)
        y = x + lam / rho[i]
        z = y.mean(axis=0)
        lam = lam + rho[i] * (x - z)
        states.append((z, lam))
    return states


designs = st.one_of(
    st.builds(best, st.integers(3, 20), st.integers(2, 3), st.integers(0, 99)),
    st.builds(randomized, st.sampled_from([9, 12, 15, 21]), st.just(3), st.integers(0, 99)),
    st.builds(Design.everyone, st.integers(2, 12)),
)


@given(st.data(), designs, st.sampled_from([np.float32, np.float64]), st.sampled_from([1, 1 / 16, 1 / 256]))
@settings(max_examples=60, deadline=None)
def test_any_finite_inputs_average_to_their_mean_on_any_design(data, design, dtype, rho):
    values = st.floats(-1e6, 1e6, width=32)
    vectors = list(data.draw(arrays(dtype, (design.n, 7), elements=values)))
    options = {"rho": rho, "iterations": data.draw(st.integers(2, 4)), "round": data.draw(st.integers(0, 5))}
    got = run(partial(paper, design=design, **options), vectors).average
    assert got.dtype == dtype
    scale = 1 / rho + np.abs(vectors).max()
    limit = 1e-6 if dtype == np.float32 else 1e-13
    assert np.abs(got - np.mean(vectors, axis=0, dtype=np.float64)).max() <= limit * scale


@pytest.mark.parametrize("protocol", ["paper", "classic"])
@pytest.mark.parametrize("rho", [Schedule(start=0.3), Schedule(start=3, decay=0.2, period=2)])
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_literal_mode_is_the_papers_pseudo_code(protocol, rho, iterations):
    rng = np.random.default_rng(1)
    w = rng.normal(size=(9, 50))
    lam = np.stack([InsecureSeededDraw(0, peer=k)(w[k]) for k in range(9)])
    expected, duals = pseudo_code(w, lam, rho, iterations)[-1]
    design = best(9, 3, 0)
    got = run(
        by_name(protocol).on(design, rho=rho, iterations=iterations, finish="literal"),
        list(w),
        draws=seeded(),
    )
    np.testing.assert_allclose(got.average, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(duals.sum(axis=0), 0, atol=1e-12)


def test_dual_variables_in_the_messages_sum_to_zero():
    design, rho, n = best(15, 3, 0), 0.5, 15
    vectors = list(np.random.default_rng(2).normal(size=(n, 20)))
    outcome = run(partial(paper, design=design, rho=rho, iterations=3), vectors, record=True)
    for i in range(3):
        sent = {m.sender: m.array for m in outcome.transcript if m.step == 2 * i}
        z = np.mean([sent[k] for k in range(n)], axis=0)
        lam = [rho * (sent[k] - z) for k in range(n)]
        np.testing.assert_allclose(np.sum(lam, axis=0), 0, atol=1e-12)
        # and they are the paper's: y^{i+1} - q z^i = c (w + lam/rho)
        following = {m.sender: m.array for m in outcome.transcript if m.step == 2 * i + 2}
        for k in following:
            c, q = 2 / (2 + rho), rho / (2 + rho)
            np.testing.assert_allclose(following[k] - q * z, c * (vectors[k] + lam[k] / rho), atol=1e-12)


@pytest.mark.parametrize("rho", [0.1, 1.0, 7.0])
def test_literal_error_shrinks_by_rho_over_rho_plus_two(rho):
    vectors = list(np.random.default_rng(3).normal(size=(9, 100)))
    errors = [
        run(
            partial(paper, design=best(9, 3, 0), rho=rho, iterations=k, finish="literal"),
            vectors,
            draws=seeded(),
        ).average
        - np.mean(vectors, axis=0)
        for k in (1, 2, 3, 4)
    ]
    for before, after in itertools.pairwise(errors):
        np.testing.assert_allclose(after, rho / (rho + 2) * before, atol=1e-12)


def test_exact_arithmetic_gives_the_exact_mean():
    """The same code runs on fractions, which is what an audit does."""
    rng = np.random.default_rng(4)
    vectors = [np.array([Fraction(int(v), 7) for v in rng.integers(-99, 99, 3)], dtype=object) for _ in range(9)]

    def draws(peer, offset):
        return lambda like: np.array([Fraction(peer + 1, 3 + j) for j in range(len(like))], dtype=object)

    got = run(partial(paper, design=best(9, 3, 0), rho=Fraction(1, 100)), vectors, draws=draws).average
    assert list(got) == list(sum(vectors) / 9)


def test_literal_z_after_two_iterations_is_far_off_and_the_exact_finish_is_not():
    vectors = list(np.random.default_rng(0).normal(0, 0.05, size=(9, 20_000)))
    mean = np.mean(vectors, axis=0)
    mse = {}
    for finish in ("literal", "exact"):
        protocol = partial(paper, design=best(9, 3, 0), rho=0.01, finish=finish)
        mse[finish] = np.mean((run(protocol, vectors, draws=seeded()).average - mean) ** 2)
    assert 3e-2 < mse["literal"] < 1.2e-1  # 6e-2
    assert mse["exact"] < 1e-27  # 3e-29


@pytest.mark.parametrize("iterations", AUTHORS)
def test_authors_schedules_reproduce_the_order_of_magnitude_of_their_errors(iterations):
    """From four iterations on float32 rounding decides, and with it how far apart peers are: 5e-4 here."""
    (start, decay, period), reported = AUTHORS[iterations]
    rng = np.random.default_rng(0)
    base = rng.normal(0, 0.05, 50_000)
    vectors = [(base + rng.normal(0, 5e-4, base.size)).astype(np.float32) for _ in range(9)]
    rho = Schedule(start=start, decay=decay, period=period)
    protocol = partial(paper, design=best(9, 3, 0), rho=rho, iterations=iterations, finish="literal")
    got = run(protocol, vectors, draws=seeded()).average
    mse = np.mean((got - np.mean(vectors, axis=0, dtype=np.float64)) ** 2)
    assert abs(np.log10(mse / reported)) < (0.4 if iterations <= 3 else 1.4)


@pytest.mark.parametrize("protocol", ["paper", "classic", "plain"])
@given(chunk=st.integers(1, 60), threads=st.integers(1, 3), dtype=st.sampled_from([np.float32, np.float64]))
@settings(max_examples=15, deadline=None)
def test_chunk_size_and_threads_never_change_the_result(protocol, chunk, threads, dtype):
    vectors = list(np.random.default_rng(5).normal(size=(10, 57)).astype(dtype))
    bound = by_name(protocol).on(best(10, 3, 0)).at(3)
    whole = run(bound, vectors, draws=seeded(), chunk=57, threads=1)
    cut = run(bound, vectors, draws=seeded(), chunk=chunk, threads=threads)
    assert whole.average.tobytes() == cut.average.tobytes()
    assert whole.sent == cut.sent


def test_partitions_rotate_with_the_round():
    design = best(9, 3, 0)
    vectors = [np.ones(3)] * 9

    def met(round):
        transcript = run(partial(paper, design=design, round=round), vectors, record=True).transcript
        return [{(m.sender, m.receiver) for m in transcript if m.step == step} for step in (0, 2)]

    def mates(iteration):
        return {(a, b) for g in design.partition(iteration) for a in g for b in g if a != b}

    assert met(0) == [mates(0), mates(1)]
    assert met(1) == [mates(2), mates(3)]
    assert met(2) == met(0)


@pytest.mark.parametrize(("n", "size"), [(9, 3), (10, 3), (11, 4), (15, 3), (7, 2)])
def test_messages_stay_within_groups_and_sums_reach_everybody_once(n, size):
    design = best(n, size, 0)
    outcome = run(partial(paper, design=design), [np.ones(2)] * n, record=True)
    for message in outcome.transcript:
        group = design.group(message.sender, message.step // 2)
        assert (message.receiver in group) == (message.step % 2 == 0)
    for peer in range(n):
        sums = [m for m in outcome.transcript if m.receiver == peer and m.step == 1]
        assert len(sums) == len(design.partition(0)) - 1
    assert sum(outcome.sent) == sum(m.array.nbytes for m in outcome.transcript)


def test_masks_hide_the_parameters_behind_their_stated_width():
    """The first message is c (w + lam/rho): uniform over a width of c/rho."""
    w = [np.full(20_000, 0.1)] * 9
    first = next(iter(run(partial(paper, design=best(9, 3, 0)), w, record=True).transcript)).array
    c = 2 / (2 + DEFAULT_RHO)
    mask = (first / c - 0.1) * DEFAULT_RHO
    assert 0 <= mask.min() < 0.001
    assert 0.999 < mask.max() < 1
    assert abs(mask.mean() - 0.5) < 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 1}, 'finish = "literal"'),
        ({"iterations": 0, "finish": "literal"}, "at least 1"),
        ({"finish": "fast"}, '"exact" or "literal"'),
        ({"rho": 0}, "positive finite"),
        ({"rho": -1.0}, "positive finite"),
        ({"rho": float("nan")}, "positive finite"),
        ({"rho": float("inf")}, "positive finite"),
    ],
)
def test_impossible_options_are_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        average([np.ones(2)] * 9, protocol="paper", **options)


@pytest.mark.parametrize(
    ("options", "message"), [({"start": 1, "decay": 0}, "decay"), ({"start": 1, "period": 0}, "period")]
)
def test_impossible_schedules_are_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(**options)
