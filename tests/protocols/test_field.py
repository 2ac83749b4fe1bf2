"""The prime field and Algorithm 3 in it: exact totals, perfect masks, and agreement with shares."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import securedfl
from securedfl.designs import best
from securedfl.protocols import FieldPoint, InsecureSeededDraw, by_name, grouped, secret_uniform
from securedfl.protocols import field as fields
from securedfl.protocols.field import PRIMES, PrimeWords, once
from securedfl.protocols.fixedpoint import Symbols
from securedfl.protocols.shares.shares import shares
from securedfl.simulation import run

WIDTHS = sorted(PRIMES)
words = st.sampled_from(WIDTHS)


def elements(bits: int, values: list[int]) -> np.ndarray:
    return np.array([value % PRIMES[bits] for value in values], dtype=f"u{bits // 8}")


@given(words, st.lists(st.integers(0, 2**64), min_size=1, max_size=40), st.integers(1, 999), st.data())
@settings(max_examples=150, deadline=None)
def test_arithmetic_is_that_of_whole_numbers_modulo_the_prime(bits, values, n, data):
    field, prime = PrimeWords(bits), PRIMES[bits]
    edges = [0, 1, prime - 1, prime // 2, prime // 2 + 1]
    a = elements(bits, values + edges)
    b = elements(bits, data.draw(st.permutations(values + edges)))
    whole = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert field.add(a, b).tolist() == [(x + y) % prime for x, y in whole]
    assert field.subtract(a, b).tolist() == [(x - y) % prime for x, y in whole]
    assert field.divide(a, n).tolist() == [x * pow(n, -1, prime) % prime for x, _ in whole]
    assert field.divide(a, 2).tolist() == [x * pow(2, -1, prime) % prime for x, _ in whole]
    assert field.total([a, b, a]).tolist() == [(2 * x + y) % prime for x, y in whole]


@pytest.mark.parametrize("bits", WIDTHS)
def test_masks_are_uniform_over_the_whole_field_and_drawn_again_beyond_it(bits):
    prime, word = PRIMES[bits], np.dtype(f"u{bits // 8}")
    asked = []

    def draw(like):
        # all ones give the largest number of as many bits as the prime has, which is not below it
        asked.append(len(like))
        return np.full_like(like, 2**bits - 1) if len(asked) == 1 else np.arange(len(like), dtype=word)

    assert PrimeWords(bits).uniform(draw, np.empty(5, dtype=word)).tolist() == [0, 1, 2, 3, 4]
    assert asked == [5, 5]
    drawn = PrimeWords(bits).uniform(secret_uniform, np.empty(200_000, dtype=word))
    assert drawn.max() < prime
    counts = np.histogram(drawn.astype(np.float64), bins=16, range=(0, prime))[0]
    assert np.abs(counts - len(drawn) / 16).max() < 6 * np.sqrt(len(drawn) / 16)


@given(words, st.integers(3, 999), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_the_total_of_any_number_of_extreme_values_never_wraps(bits, n, seed):
    code = FieldPoint(bits=bits)
    limit = code.limit(bits)
    try:
        scale = 2 ** code.fraction_bits(bits, n)
    except securedfl.ConfigError:
        assert (bits, limit * n > PRIMES[bits] // 2) == (16, True)
        return
    rng = np.random.default_rng(seed)
    w = np.concatenate([[limit, -limit, 0.0], rng.uniform(-limit, limit, 5)])
    codes = code.encode(w, n)
    assert codes.max() < PRIMES[bits]
    total = np.array([int(value) * n % PRIMES[bits] for value in codes], dtype=codes.dtype)
    exact = [float(Fraction(round(Fraction(float(value)) * scale)) / scale) for value in w]
    # one rounding to float64, one division
    np.testing.assert_allclose(code.decode(total, n, w), exact, rtol=5e-16, atol=0)


@given(st.integers(3, 30), st.sampled_from([2, 3, 4]), words, st.sampled_from(["f4", "f8"]), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_the_average_is_exact_and_agrees_with_shares_to_one_step(n, iterations, bits, dtype, seed):
    design = best(n, 3 if n > 5 else 2, 0)
    rng = np.random.default_rng(seed)
    vectors = list(rng.uniform(-0.2, 0.2, (n, 6)).astype(dtype))
    got = run(partial(grouped, design=design, bits=bits, iterations=iterations, round=seed), vectors).average
    step = FieldPoint(bits=bits).step(vectors[0], n)
    rounding = np.finfo(dtype).eps
    assert np.abs(got - np.mean(vectors, axis=0, dtype="f8")).max() <= step / 2 + rounding
    same = run(partial(shares, design=design, bits=bits, strength=1), vectors).average
    assert np.abs(got - same).max() <= step + rounding
    codes = [FieldPoint(bits=bits).encode(vector, n) for vector in vectors]
    exact = FieldPoint(bits=bits).decode(PrimeWords(bits).total(codes), n, vectors[0])
    assert got.tolist() == exact.tolist()


def test_views_have_the_same_distribution_for_inputs_of_equal_total(monkeypatch):
    """Brute force over a tiny field: all masks of four peers, all inputs, everything that one peer receives."""
    prime, design = 7, best(4, 2, 0)
    monkeypatch.setitem(fields.PRIMES, 16, prime)

    class Tiny(Symbols):
        def field(self, like):
            return PrimeWords(16)

    # values are averaged one by one, so that all masks of the others fit in one vector; peer 0 has one mask
    masks = np.array([(3, *others) for others in product(range(prime), repeat=3)], dtype=np.uint16).T

    def distribution(w):
        """Return how often peer 0 receives what, over all masks."""
        received = []
        running = [
            grouped(me, np.full_like(masks[me], w[me]), design, codec=Tiny(), draw=lambda _, me=me: masks[me].copy())
            for me in range(4)
        ]
        outboxes = [next(steps) for steps in running]
        while True:
            inboxes = [{u: outboxes[u][v] for u in range(4) if v in outboxes[u]} for v in range(4)]
            received += [inboxes[0][u].tolist() for u in sorted(inboxes[0])]
            try:
                outboxes = [steps.send(inbox) for steps, inbox in zip(running, inboxes, strict=True)]
            except StopIteration:
                return Counter(zip(*received, strict=True))

    first = {}
    compared = 0
    for others in product(range(0, prime, 2), repeat=3):
        found = distribution((1, *others))
        compared += sum(others) % prime in first
        assert first.setdefault(sum(others) % prime, found) == found
    assert compared > 50
    assert len({tuple(sorted(found.items())) for found in first.values()}) == len(first) == prime


def test_bytes_are_those_of_the_vector():
    design = best(9, 3, 0)
    vectors = [np.zeros(1000, np.float32)] * 9
    sent = {bits: sum(run(partial(grouped, design=design, bits=bits), vectors).sent) for bits in WIDTHS}
    floats = sum(run(partial(securedfl.protocols.paper, design=design), vectors).sent)
    assert (sent[32], sent[16], sent[64]) == (floats, floats / 2, floats * 2)


def test_values_beyond_the_range_get_one_that_fits_unless_one_was_chosen():
    big = [np.array([1000.0 * k, 0.5], np.float32) for k in range(9)]
    assert securedfl.average(big).tolist() == pytest.approx([4000, 0.5], abs=1e-3)
    with pytest.raises(securedfl.InvalidInputError, match="beyond the range of -16 to 16"):
        securedfl.average(big, range=16.0)
    with pytest.raises(securedfl.InvalidInputError, match="or more bits"):
        securedfl.average([np.full(2, 1e30, np.float32)] * 9)


def test_one_iteration_is_refused_with_what_to_do():
    with pytest.raises(securedfl.ConfigError, match='the protocol "paper" takes one'):
        securedfl.average([np.ones(2)] * 9, iterations=1)


def test_what_many_peers_compute_of_the_very_same_arrays_is_computed_once():
    field, made = PrimeWords(32), []

    def sealed(*values):
        array = np.array(values, dtype=np.uint32)
        array.flags.writeable = False
        return array

    def make():
        made.append(field.add(a, b))
        return made[-1]

    a, b = sealed(1, 2), sealed(3, 4)
    first = once("sum", make, a, b)
    assert once("sum", make, a, b) is first
    assert len(made) == 1
    with pytest.raises(ValueError, match="read-only"):
        first += 1
    # another question, other memory, and memory that may still change: computed anew
    for what, arrays in (("other", (a, b)), ("sum", (b, a)), ("sum", (sealed(1, 2), b)), ("sum", (a.copy(), b))):
        assert once(what, make, *arrays) is not first
    once("sum", make, a[:], b)
    assert len(made) == 6


def test_peers_that_compute_everything_themselves_get_the_same_bits():
    """As real peers do, whose messages are in memory of their own."""
    design = best(9, 3, 0)
    vectors = list(np.random.default_rng(1).normal(0, 1, (9, 50)).astype(np.float32))

    def alone(me, w, *, draw):
        steps, received = grouped(me, w, design, draw=draw), None
        while True:
            try:
                outbox = steps.send(received)
            except StopIteration as stop:
                return stop.value
            received = {peer: array.copy() for peer, array in (yield outbox).items()}

    def draws(peer, offset):
        return InsecureSeededDraw(3, peer=peer, offset=offset)

    together = run(by_name("grouped").on(design), vectors, draws=draws, record=True)
    apart = run(alone, vectors, draws=draws, record=True)
    assert together.average.tobytes() == apart.average.tobytes()
    for one, other in zip(together.transcript, apart.transcript, strict=True):
        assert (one.step, one.sender, one.receiver) == (other.step, other.sender, other.receiver)
        assert one.array.tobytes() == other.array.tobytes()
