"""The average by shares: exact, the same everywhere, cheap on the wire, and clear about what it cannot do."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import securedfl
from securedfl.designs import Design, best
from securedfl.designs.algorithm2 import randomized
from securedfl.errors import ConfigError, DesignError, InvalidInputError, PrivacyError
from securedfl.protocols import InsecureSeededDraw
from securedfl.protocols.fixedpoint import FixedPoint
from securedfl.protocols.shares.resilient import resilient
from securedfl.protocols.shares.shares import shares
from securedfl.simulation import run


def exact_mean(vectors):
    return np.mean(np.asarray(vectors, dtype=np.longdouble), axis=0)


@st.composite
def federations(draw):
    """Peers in groups of any mixture of sizes, groups of one included, with any strength and size of vector."""
    n = draw(st.integers(3, 17))
    if draw(st.booleans()):
        design = randomized(n, draw(st.integers(2, min(5, n))), draw(st.integers(0, 5)))
    else:
        design = Design([draw(st.permutations([u // k for u in range(n)])) for k in [draw(st.integers(1, n))]])
    return design, draw(st.integers(1, design.gap)), draw(st.integers(1, 60))


@settings(max_examples=120, deadline=None)
@given(
    federation=federations(),
    dtype=st.sampled_from(["float32", "float64"]),
    bits=st.sampled_from([None, 32, 64]),
    reach=st.sampled_from([None, 0.1, 1.0, 3.7, 100.0]),
    round=st.integers(0, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_federation_gets_the_mean(federation, dtype, bits, reach, round, seed):
    design, strength, size = federation
    width = bits or {"float32": 32, "float64": 64}[dtype]
    limit = reach or {32: 8.0, 64: 4096.0}[width]
    source = np.random.default_rng(seed)
    vectors = [source.uniform(-limit, limit, size).astype(dtype).clip(-limit, limit) for _ in range(design.n)]
    vectors = [np.where(abs(v.astype(float)) > limit, 0, v).astype(dtype) for v in vectors]
    out = run(partial(shares, design=design, strength=strength, bits=bits, range=reach, round=round), vectors)
    step = limit * design.n / 2.0 ** (width - 3)  # at most four times too coarse: powers of two, and half the ring
    rounding = limit * 2.0 ** (-24 if dtype == "float32" else -52)
    assert np.abs(out.average - exact_mean(vectors)).max() <= step + rounding
    assert out.average.dtype == dtype


@pytest.mark.parametrize("n", [3, 9, 30, 99, 255])
def test_error_of_32_bits_is_below_2_to_the_minus_20(n):
    source = np.random.default_rng(n)
    vectors = [source.uniform(-8, 8, 400).astype(np.float32) for _ in range(n)]
    for v in vectors[:]:
        v[:20] = [8, -8] * 10
    out = run(partial(shares, design=best(n, 2 if n < 9 else 3, 0), collusion=1), vectors)
    assert np.abs(out.average - exact_mean(vectors)).max() < 2.0**-20


@pytest.mark.parametrize("n", [3, 9, 99, 1000])
def test_error_of_64_bits_is_below_2_to_the_minus_40(n):
    source = np.random.default_rng(n)
    vectors = [source.uniform(-4096, 4096, 40) for _ in range(n)]
    for v in vectors:
        v[:2] = [4096, -4096]
    design = best(n, 2, 0) if n < 100 else Design([np.arange(n) // 4])  # precision does not depend on the groups
    out = run(partial(shares, design=design, strength=1), vectors)
    assert np.abs(out.average - exact_mean(vectors)).max() < 2.0**-40


@pytest.mark.parametrize(("n", "s", "m"), [(9, 3, 3), (10, 3, 2), (5, 2, 4)])
def test_neither_chunks_nor_threads_nor_masks_nor_shares_change_a_bit(n, s, m):
    source = np.random.default_rng(0)
    vectors = [source.normal(0, 1, 501).astype(np.float32) for _ in range(n)]
    design = best(n, s, 0)
    once = run(partial(shares, design=design, strength=m), vectors).average
    seeded = lambda peer, offset: InsecureSeededDraw(1, peer=peer, offset=offset)  # noqa: E731
    for other in (
        run(partial(shares, design=design, strength=m), vectors, chunk=7, threads=2),
        run(partial(shares, design=design, strength=m), vectors, chunk=1),
        run(partial(shares, design=design, strength=m, round=5), vectors, draws=seeded),
        run(partial(shares, design=design, strength=1), vectors),
        run(partial(shares, design=best(n, 2, 1), strength=2), vectors),
    ):
        assert other.average.tobytes() == once.tobytes()


def test_seeded_draws_repeat_every_message():
    vectors = [np.full(100, k / 9, dtype=np.float32) for k in range(9)]
    seeded = lambda peer, offset: InsecureSeededDraw(3, peer=peer, offset=offset)  # noqa: E731
    protocol = partial(shares, design=best(9, 3, 0), strength=3)
    first, second = (list(run(protocol, vectors, draws=seeded, record=True, chunk=30).transcript) for _ in "ab")
    assert all(np.array_equal(a.array, b.array) for a, b in zip(first, second, strict=True))
    fresh = list(run(protocol, vectors, record=True, chunk=30).transcript)
    assert not any(np.array_equal(a.array, b.array) for a, b in zip(first, fresh, strict=True) if a.step < 2)


@pytest.mark.parametrize(
    ("n", "s", "m"),
    [
        (3, 2, 3),
        (4, 2, 3),
        (5, 2, 5),
        (5, 3, 1),
        (7, 3, 1),
        (8, 3, 2),
        (9, 3, 3),
        (10, 3, 3),
        (15, 3, 7),
        (25, 5, 6),
    ],
)
def test_wire_is_nearly_an_optimal_all_reduce(n, s, m):
    design, d = best(n, s, 0), 40_000
    out = run(partial(shares, design=design, strength=min(m, design.gap)), [np.zeros(d, np.float32)] * n)
    optimal = 2 * d * 4 * (n - 1) / n
    assert max(out.sent) <= 1.1 * optimal
    assert out.steps == 3


@pytest.mark.parametrize("protocol", [shares, resilient])
@pytest.mark.parametrize(("dtype", "bits"), [("float32", 16), ("float64", 16), ("float64", 32)])
def test_fewer_bits_mean_fewer_bytes_in_every_step(protocol, dtype, bits):
    """Totals travel as narrow as shares do: 16 bits halve the bytes of float32, and give the same bits everywhere."""
    design, d = best(9, 3, 0), 40_000
    vectors = np.random.default_rng(0).normal(0, 0.01, (9, d)).astype(dtype)
    wide, narrow = (run(partial(protocol, design=design, bits=b), list(vectors)) for b in (None, bits))
    assert max(narrow.sent) <= (bits / (8 * vectors.itemsize)) * max(wide.sent) + 32 * 9
    assert narrow.average.dtype == vectors.dtype
    np.testing.assert_allclose(narrow.average, exact_mean(vectors), atol=FixedPoint(bits=bits).step(vectors, 9) / 2)


def test_partitions_rotate_with_the_round():
    design = best(9, 3, 0)
    met = []
    for round in range(4):
        out = run(partial(shares, design=design, strength=1, round=round), [np.zeros(9)] * 9, record=True)
        met.append({frozenset((m.sender, m.receiver)) for m in out.transcript if m.step == 0})
    assert not any(a & b for k, a in enumerate(met) for b in met[:k])


def test_weights_stay_hidden_and_count():
    source = np.random.default_rng(0)
    vectors, weights = [source.normal(0, 1, 50) for _ in range(7)], [1, 2, 3, 4, 5, 6, 0]
    found = securedfl.average(vectors, weights=weights, protocol="shares", collusion=2)
    np.testing.assert_allclose(found, np.average(vectors, axis=0, weights=weights), atol=1e-11)


@pytest.mark.parametrize("n", range(3, 21))
def test_any_number_of_peers_withstands_one_and_all_but_two(n):
    vectors = [np.full(11, float(k)) for k in range(n)]
    for collusion in (1, n - 2):
        found = securedfl.average(vectors, protocol="shares", collusion=collusion, group_size=2)
        np.testing.assert_allclose(found, (n - 1) / 2, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"strength": 5}, ConfigError, "a strength of 5 needs that many partitions, but the design has 4"),
        ({"strength": 0}, ConfigError, "a strength of 0"),
        ({"strength": 2, "collusion": 1}, ConfigError, "either the strength or the collusion"),
        ({"collusion": -1}, ConfigError, "cannot be negative"),
        ({"collusion": 8}, PrivacyError, "ask for at most 7"),
        ({"collusion": 4, "group_size": 3}, PrivacyError, "they withstand 2 (strength 3)"),
        ({"bits": 8}, ConfigError, "bits must be 16, 32 or 64, not 8"),
        ({"bits": 16.0}, ConfigError, "bits must be 16, 32 or 64, not 16.0"),
        ({"range": "8"}, ConfigError, "range must be a positive finite number, not '8'"),
        ({"range": True}, ConfigError, "range must be a positive finite number, not True"),
        ({"range": -1.0}, ConfigError, "positive finite number"),
        ({"range": 1e9, "bits": 32}, ConfigError, "use a range of at most 238609294 or more bits"),
        ({"codec": object(), "bits": 32}, ConfigError, "either a codec or bits and range"),
    ],
)
def test_settings_that_cannot_be_met(options, error, text):
    with pytest.raises(error) as caught:
        securedfl.average([np.zeros(4)] * 9, protocol="shares", **{"group_size": 3} | options)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.nan, "peer 4 has nan at parameter 'b' (index 3 of the flat vector)"),
        (-np.inf, "peer 4 has -inf at parameter 'b' (index 3 of the flat vector)"),
        (1e9, "parameter 'b' (index 3 of the flat vector) of peer 4 is beyond the range of -8 to 8; "),
        (-1e30, "choose a wider range, at the price of coarser steps, or more bits"),
    ],
)
def test_values_that_do_not_fit_are_named_but_not_shown(value, text):
    peers = [{"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)} for _ in range(9)]
    peers[4]["b"][1] = value
    for chunk in (1, 2, 100):
        with pytest.raises(InvalidInputError) as caught:
            securedfl.average(peers, protocol="shares", chunk=chunk)
        assert text in str(caught.value)
        assert not np.isfinite(value) or f"{value:g}" not in str(caught.value)


def test_the_largest_values_of_all_peers_do_not_wrap():
    for value in (8.0, -8.0):
        found = securedfl.average([np.full(5, value, np.float32)] * 255, protocol="shares", group_size=3)
        assert (found == value).all()


@pytest.mark.parametrize("protocol", ["shares", "resilient"])
def test_a_design_in_which_two_meet_twice_is_refused(protocol):
    """The second share for a peer would take the place of the first."""
    twice = Design([[0, 0, 1, 1], [0, 0, 1, 1]])
    with pytest.raises(DesignError, match="peers 0 and 1 meet twice"):
        securedfl.average([np.full(3, float(k)) for k in range(4)], protocol=protocol, design=twice, strength=2)


@pytest.mark.parametrize("largest", [4096.0, np.nextafter(4096.0, np.inf), 8191.9, 1e9])
def test_whatever_is_too_large_for_the_usual_range_fits_a_wider_one(largest):
    mean = securedfl.average([np.array([largest, -1.0])] * 3)
    np.testing.assert_allclose(mean, [largest, -1.0], rtol=1e-9)
