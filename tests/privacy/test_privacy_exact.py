"""Exact arithmetic: the field and the ring calculate as Python's integers do, and reduction finds row spaces."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from securedfl.errors import PrivacyError
from securedfl.privacy.symbolic.algebra import PrimeField, TwoAdic, eliminate, is_prime, reduce

FIELD, RING = PrimeField.chosen_by("tests"), TwoAdic()


def test_the_prime_is_a_prime_of_fifty_bits_and_depends_on_the_text_alone():
    assert is_prime(FIELD.modulus)
    assert FIELD.modulus.bit_length() == 50
    assert PrimeField.chosen_by("tests").modulus == FIELD.modulus != PrimeField.chosen_by("other").modulus


def test_is_prime_knows_small_primes_and_pseudoprimes():
    assert [k for k in range(60) if is_prime(k)] == [
        2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59,
    ]  # fmt: skip
    assert not is_prime(3215031751)  # strong pseudoprime to bases 2, 3, 5 and 7
    assert is_prime(2**61 - 1)


@given(
    st.lists(st.tuples(st.integers(0, FIELD.modulus - 1), st.integers(0, FIELD.modulus - 1)), min_size=1, max_size=20)
)
def test_field_arithmetic_is_that_of_python_integers(pairs):
    a, b = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    for operation, name in ((FIELD.add, "__add__"), (FIELD.subtract, "__sub__"), (FIELD.multiply, "__mul__")):
        assert operation(a, b).tolist() == [getattr(x, name)(y) % FIELD.modulus for x, y in pairs]


def test_fractions_become_elements():
    third = FIELD.element(Fraction(1, 3))
    assert third * 3 % FIELD.modulus == 1
    assert RING.element(Fraction(-2, 3)) * 3 % 2**64 == 2**64 - 2
    with pytest.raises(PrivacyError, match="even"):
        RING.element(Fraction(1, 2))


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32), st.sampled_from([FIELD, RING]))
@example(3, 3, 66466, RING)  # determinant two: a row is divided by two on the way
@settings(max_examples=60)
def test_reduce_finds_a_unit_vector_exactly_if_it_is_in_the_row_space(rows, columns, seed, ring):
    source = np.random.default_rng(seed)
    table = source.integers(-1, 2, (rows, columns))
    # over the rationals, by a rank that is exact for such small integers
    rank = np.linalg.matrix_rank(table)
    basis = reduce(_to(ring, table), ring)
    for column in range(columns):
        unit = np.eye(columns, dtype=int)[column]
        inside = np.linalg.matrix_rank(np.vstack([table, unit])) == rank
        found = any((row == _to(ring, unit[None])[0]).all() for row in basis)
        assert found == inside
    assert len(basis) == rank


@given(st.integers(0, 2**32), st.sampled_from([FIELD, RING]))
@settings(max_examples=40)
def test_eliminate_keeps_what_does_not_depend_on_the_masks(seed, ring):
    source = np.random.default_rng(seed)
    table = source.integers(-1, 2, (6, 7))
    left = eliminate(_to(ring, table), 3, ring)
    dimension = np.linalg.matrix_rank(table) - np.linalg.matrix_rank(table[:, :3])
    if ring is FIELD:
        assert len(reduce(left, ring)) == dimension
    else:  # some bits more may be told where a minor is even
        assert len(reduce(left, ring)) >= dimension


def test_an_even_coefficient_in_the_ring_counts_as_a_leak():
    # w + 2 r tells the lowest bit of w, and 2 w tells all but the highest: both are leaks
    mask_first = _to(RING, np.array([[2, 1]]))
    assert reduce(eliminate(mask_first, 1, RING), RING).tolist() == [[1]]
    assert reduce(_to(RING, np.array([[2]])), RING).tolist() == [[1]]
    assert not eliminate(_to(RING, np.array([[1, 1]])), 1, RING).size


def _to(ring, table):
    if ring is RING:
        return table.astype(np.int64).astype(np.uint64)
    return np.mod(table, FIELD.modulus).astype(np.int64)
