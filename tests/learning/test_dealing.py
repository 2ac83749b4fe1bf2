"""Dealing: all samples dealt once, every peer able to split 90/10."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.datasets import load
from securedfl.learning.data.dealing import deal


def people(users, each=20, **changes):
    size = users * each
    values = {
        "name": "people",
        "x": np.arange(size, dtype=np.float32)[:, None],
        "y": np.arange(size) % 5,
        "classes": 5,
        "users": np.arange(size) % users,
    }
    return Dataset(**{**values, **changes})


def everything(dealt):
    return np.sort(np.concatenate([np.concatenate([own.train, own.test]) for own in dealt]))


@given(
    peers=st.integers(1, 12),
    dealing=st.sampled_from(["even", "natural", "dirichlet"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_every_sample_is_dealt_exactly_once_and_split_nine_to_one(peers, dealing, seed):
    dataset = people(users=24)
    dealt = deal(dataset, peers, dealing=dealing, alpha=1.0, seed=seed)
    assert everything(dealt).tolist() == list(range(len(dataset)))
    for own in dealt:
        count = len(own.train) + len(own.test)
        assert len(own.test) == pytest.approx(count / 10, abs=0.5 if dealing != "natural" else 0)


def test_even_parts_differ_by_at_most_one_sample():
    sizes = [len(own.train) + len(own.test) for own in deal(load("digits"), 9)]
    assert (min(sizes), max(sizes)) == (199, 200)


def test_natural_deals_whole_users_in_equal_numbers_and_splits_each_user():
    dataset = people(users=27)
    dealt = deal(dataset, 9, dealing="natural", seed=3)
    held = [set(dataset.users[np.concatenate([own.train, own.test])].tolist()) for own in dealt]
    assert [len(users) for users in held] == [3] * 9
    assert len(set.union(*held)) == 27
    for own in dealt:
        assert np.bincount(dataset.users[own.test])[-1] == 2  # a tenth of each user's 20


def test_a_small_alpha_is_less_even_than_a_large_one():
    digits = load("digits")

    def unevenness(alpha):
        dealt = deal(digits, 9, dealing="dirichlet", alpha=alpha, seed=1)
        counts = np.array([np.bincount(digits.y[own.train], minlength=10) for own in dealt])
        return (counts / counts.sum(axis=1, keepdims=True)).std()

    assert unevenness(0.3) > 3 * unevenness(100)


def test_a_split_that_comes_with_the_data_is_kept():
    marks = np.arange(480) % 6 == 0
    for own in deal(people(users=24, held_out=marks), 4, seed=1):
        assert marks[own.test].all()
        assert not marks[own.train].any()


def test_same_seed_same_deal():
    first, again, other = (deal(load("digits"), 9, seed=seed) for seed in (5, 5, 6))
    assert all(np.array_equal(a.test, b.test) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].test, other[0].test)


@pytest.mark.parametrize(
    ("peers", "options", "error", "message"),
    [
        (49, {}, InvalidInputError, "49 peers need at least 490 samples .* at most 48 peers"),
        (30, {"dealing": "natural"}, InvalidInputError, "24 users, too few for 30 peers"),
        (24, {"dealing": "dirichlet", "alpha": 0.01}, InvalidInputError, "larger alpha or fewer peers"),
        (4, {"dealing": "dirichlet", "alpha": 0.0}, ConfigError, "alpha .* must be a positive number"),
        (4, {"dealing": "odd"}, ConfigError, "unknown dealing 'odd'"),
    ],
)
def test_what_cannot_be_dealt_is_refused(peers, options, error, message):
    with pytest.raises(error, match=message):
        deal(people(users=24), peers, **options)


def test_a_peer_without_test_samples_is_refused():
    with pytest.raises(InvalidInputError, match="peer 0 has no test samples"):
        deal(people(users=24, held_out=np.zeros(480, bool)), 4)


def test_natural_needs_users():
    with pytest.raises(ConfigError, match="does not say whom its samples are from"):
        deal(load("digits"), 9, dealing="natural")
