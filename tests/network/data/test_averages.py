"""What may be averaged: finite numbers, however large."""

import numpy as np
import pytest

from securedfl.errors import InvalidInputError
from securedfl.network.data.averages import check_finite, check_own


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [0, 65_535, 65_536, 150_000])
def test_what_is_not_finite_is_refused_with_its_place(dtype, bad, index):
    vector = np.ones(150_001, dtype)
    vector[index] = bad
    with pytest.raises(InvalidInputError, match=rf"p3 are not finite \(first at index {index}\)"):
        check_own(vector, "p3")
    with pytest.raises(InvalidInputError, match="the average is not finite"):
        check_finite(vector)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_finite_numbers_pass_even_if_their_sum_is_too_large(dtype):
    vector = np.full(100_000, np.finfo(dtype).max, dtype)
    check_own(vector, "p0")
    vector[::2] *= -1
    check_own(vector, "p0")
    check_finite(np.empty(0, dtype))


def test_opposite_infinities_do_not_cancel():
    with pytest.raises(InvalidInputError, match="index 1"):
        check_own(np.array([0.0, np.inf, -np.inf], np.float32), "p0")
