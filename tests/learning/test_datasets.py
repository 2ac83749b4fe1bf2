"""Data sets: what `digits` holds, and what is refused."""

import numpy as np
import pytest

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.datasets import load, source


def toy(**changes):
    values = {"name": "toy", "x": np.zeros((20, 1, 4, 4), np.float32), "y": np.arange(20) % 2, "classes": 2}
    return Dataset(**{**values, **changes})


def test_digits_are_images_between_0_and_1_with_ten_classes():
    digits = load("digits")
    assert digits.x.shape == (1797, 1, 8, 8)
    assert digits.x.dtype == np.float32
    assert (digits.x.min(), digits.x.max()) == (0, 1)
    assert digits.y.dtype == np.int64
    assert np.bincount(digits.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (digits.shape, digits.user_count) == ((1, 8, 8), 0)


def test_users_are_counted():
    assert toy(users=np.repeat([7, 3, 5, 1], 5)).user_count == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.zeros((0, 1, 4, 4), np.float32), "y": np.zeros(0, np.int64)}, "'toy' is empty"),
        ({"x": np.where(np.arange(20) == 7, np.nan, 0.0)[:, None]}, "sample 7 .* NaN"),
        ({"x": np.where(np.arange(20) == 3, np.inf, 0.0)[:, None]}, "sample 3 .* infinity"),
        ({"y": np.arange(19) % 2}, "20 samples but 19 labels"),
        ({"users": np.arange(3)}, "20 samples but 3 user ids"),
        ({"y": np.arange(20) % 3}, "from 0 to 2, but its 2 classes"),
        ({"y": np.arange(20) % 2 - 1}, "from -1 to 0"),
        ({"y": np.zeros(20)}, "whole numbers, not float64"),
    ],
)
def test_bad_data_is_refused_with_the_reason(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        toy(**changes)


def test_unknown_data_set_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        source("digit")


def test_a_fraction_keeps_whole_users_and_everything_about_their_samples():
    users = np.repeat([7, 3, 5, 1], 5)
    x = np.arange(20, dtype=np.float32)[:, None]
    whole = toy(users=users, held_out=np.arange(20) % 5 == 0, x=x, alphabet="ab")
    half = whole.fraction(0.5, np.random.default_rng(0))
    assert (len(half), half.user_count, half.alphabet) == (10, 2, "ab")
    kept = half.x[:, 0].astype(int)
    assert np.array_equal(np.isin(users, half.users).nonzero()[0], kept)
    for name in ("y", "users", "held_out"):
        assert np.array_equal(getattr(half, name), getattr(whole, name)[kept])
    assert whole.fraction(1.0, np.random.default_rng(0)) is whole
    assert whole.fraction(0.001, np.random.default_rng(0)).user_count == 1


def test_a_fraction_is_of_samples_where_users_are_unknown_and_the_generator_decides():
    whole = toy(x=np.arange(20, dtype=np.float32)[:, None])
    first, again, other = (whole.fraction(0.25, np.random.default_rng(seed)).x[:, 0] for seed in (1, 1, 2))
    assert len(first) == 5
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
