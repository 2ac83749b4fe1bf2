"""Symbols: linear arithmetic goes through, anything else is refused."""

import operator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securedfl.errors import PrivacyError
from securedfl.privacy.symbolic.algebra import PrimeField
from securedfl.privacy.symbolic.forms import Form, exactly, simplest

FIELD = PrimeField.chosen_by("symbols")


def forms(*symbols):
    array = np.empty(len(symbols), dtype=object)
    array[:] = [Form.unit(symbol, FIELD) for symbol in symbols]
    return array


def test_arrays_of_forms_calculate_in_place_and_broadcast():
    a, b = forms(1, 2), forms(3, 4)
    y = a + b
    y *= Fraction(2, 3)
    y += np.zeros(1, dtype=object)
    y -= b / 3
    expected = a * Fraction(2, 3) + b * Fraction(1, 3)
    assert (y == expected).all()
    assert (5 - a == -(a - 5)).all()


def test_floats_stand_for_the_simplest_fraction():
    assert simplest(0.1) == Fraction(1, 10)
    assert simplest(1 / 9) == Fraction(1, 9)
    assert simplest(7e-6) == Fraction(7, 1_000_000)
    assert exactly(np.float64(0.0625)) == Fraction(1, 16)
    assert exactly("no number") is None


@given(st.floats(allow_nan=False, allow_infinity=False, width=64))
def test_the_simplest_fraction_rounds_to_the_float(number):
    assert float(simplest(number)) == number


@pytest.mark.parametrize(
    "broken",
    [
        lambda f: f * f,
        lambda f: f / f,
        lambda f: 1 / f,
        lambda f: f < f,
        lambda f: bool(f),
        lambda f: float(f),
        lambda f: f * float("nan"),
    ],
)
def test_what_is_not_linear_is_refused(broken):
    with pytest.raises(PrivacyError):
        broken(Form.unit(1, FIELD))


def test_what_is_no_number_is_a_type_error():
    for operation in (operator.add, operator.sub, operator.mul, operator.truediv):
        with pytest.raises(TypeError):
            operation(Form.unit(1, FIELD), "x")
