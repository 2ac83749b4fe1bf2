"""What cannot be averaged: errors that name the peer, the part and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import securedfl
from securedfl.errors import ConfigError, DesignError, InvalidInputError


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"local": ["haed.*"]},
            InvalidInputError,
            "'haed.*' in local matches no parameter; the nearest name is 'head'",
        ),
        ({"local": ["*"]}, InvalidInputError, "nothing is left to average: .* name fewer in local"),
        ({"local": ["head", "body"]}, InvalidInputError, "nothing is left to average"),
        ({"integers": "max"}, ConfigError, r"unknown value of integers 'max' \(known: average, own\)"),
        ({"integers": "maximum"}, ConfigError, 'a maximum is no sum.* Use "own" .* or "average"'),
    ],
)
def test_choices_that_leave_nothing_or_mean_nothing(options, error, message):
    tree = {"head": np.ones(2), "body": np.ones(3), "steps": np.array(4)}
    with pytest.raises(error, match=message.replace(".*'", r"\.\*'")):
        securedfl.average([tree] * 9, **options)


@pytest.mark.parametrize(
    ("bits", "largest", "message"),
    [
        (16, 100, "in steps of 1.2e-02; lower max_weight, or use more bits"),
        (16, 1e7, "next to nothing beside max_weight"),
        (32, 1e7, "in steps of 6.0e-01"),
        (64, 1e9, "too little for float64 to give a quotient; lower max_weight$"),
    ],
)
def test_weights_that_leave_nothing_of_an_average_are_refused(bits, largest, message):
    vectors = [np.full(1, 0.01 * k) for k in range(9)]
    with pytest.raises(InvalidInputError, match=message):
        securedfl.average(vectors, weights=[1] * 9, max_weight=largest, protocol="shares", bits=bits)


GOOD = {"layer": np.ones((2, 2), np.float32), "count": np.array(3)}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            {"layer": np.ones((2, 3), np.float32), "count": np.array(3)},
            r"peer 4 has float32\[2, 3\] where peer 0",
        ),
        ({"layer": np.ones((2, 2)), "count": np.array(3)}, r"peer 4 has float64\[2, 2\]"),
        ({"layer": GOOD["layer"]}, "peer 4 has nothing where peer 0 has .* parameter 'count'"),
        ({"count": GOOD["count"], "layer": GOOD["layer"]}, "another order"),
        (
            {"layer": np.full((2, 2), np.nan, np.float32), "count": np.array(3)},
            "peer 4 has nan at parameter 'layer'",
        ),
        (
            {"layer": np.full((2, 2), np.inf, np.float32), "count": np.array(3)},
            "peer 4 has inf at parameter 'layer'",
        ),
        ({"layer": GOOD["layer"], "count": np.array(2**24 + 1)}, "parameter 'count' .* pass dtype='float64'"),
        ({"layer": GOOD["layer"] * 1j, "count": np.array(3)}, "'layer' has dtype complex64; only real"),
        ({"layer": np.array([["a", "b"]] * 2), "count": np.array(3)}, "only real numbers"),
    ],
)
def test_a_peer_that_differs_or_is_not_finite_is_named(bad, message):
    peers = [GOOD] * 9
    peers[4] = bad
    with pytest.raises(InvalidInputError, match=message):
        securedfl.average(peers, integers="average")


@pytest.mark.parametrize(
    ("inputs", "options", "error", "message"),
    [
        ([], {}, InvalidInputError, "nothing to average"),
        ([np.zeros(0)] * 9, {}, InvalidInputError, "no parameters"),
        ([{}] * 9, {}, InvalidInputError, "no parameters"),
        ([np.ones(2)] * 9, {"weights": [1] * 8}, InvalidInputError, "8 weights for 9 peers"),
        ([np.ones(2)] * 9, {"weights": [0] * 9}, InvalidInputError, "all weights are zero"),
        ([np.ones(2)] * 9, {"weights": [-1] + [1] * 8}, InvalidInputError, "weight of peer 0 is negative"),
        (
            [np.ones(2)] * 9,
            {"weights": [float("nan")] + [1] * 8},
            InvalidInputError,
            "weight of peer 0 is negative or not finite",
        ),
        ([np.ones(2)] * 9, {"weights": [2] * 9, "max_weight": 1}, InvalidInputError, "above max_weight = 1"),
        ([np.ones(2)] * 9, {"max_weight": 1}, InvalidInputError, "weights are not"),
        ([np.ones(2)] * 9, {"design": securedfl.Design.everyone(8)}, DesignError, "for 8 peers, but 9"),
        ([np.ones(2)] * 9, {"protocol": "magic"}, securedfl.SecuredFLError, "unknown protocol .magic."),
        ([np.ones(2)] * 9, {"dtype": "float16"}, InvalidInputError, "float32 or float64"),
        ([np.ones(2)] * 2, {}, DesignError, "3"),
        ([np.ones(2)] * 9, {"group_size": 10}, DesignError, "10"),
        ([np.full(2, 3e38, np.float32)] * 9, {"protocol": "paper"}, InvalidInputError, "overflows float32"),
    ],
)
def test_what_cannot_be_averaged_is_an_error_that_says_why(inputs, options, error, message):
    with pytest.raises(error, match=message):
        securedfl.average(inputs, **options)


@pytest.mark.parametrize(
    ("inputs", "options", "error", "message"),
    [
        (None, {}, InvalidInputError, "not a NoneType"),
        ({"a": np.ones(2)}, {}, InvalidInputError, "not a dict; list"),
        ([{"a": {"b": np.ones(2)}}] * 9, {}, InvalidInputError, "'a' is a dict itself"),
        ([{"a": torch.nn.Linear(1, 1)}] * 9, {}, InvalidInputError, "state_dict"),
        (torch.nn.Sequential(torch.nn.Linear(1, 1)), {}, InvalidInputError, "not a Sequential"),
        ([[[1, 2], [3]]] * 9, {}, InvalidInputError, "differ in length"),
        ([{1: np.ones(1), "1": np.ones(1)}] * 9, {}, InvalidInputError, "same name"),
        ([np.ones(2, np.longdouble)] * 9, {}, InvalidInputError, "longdouble|float128"),
        ([np.ones(2)] * 9, {"weights": {0: 1}}, InvalidInputError, "list of numbers"),
        ([np.ones(2)] * 9, {"weights": ["a"] * 9}, InvalidInputError, "list of numbers"),
        (
            [np.ones(2)] * 9,
            {"weights": [1] * 9, "max_weight": float("inf")},
            InvalidInputError,
            "positive finite",
        ),
        (
            [np.ones(2, np.float32)] * 9,
            {"weights": [1] * 9, "max_weight": 1e6},
            InvalidInputError,
            "lower max_weight",
        ),
        (
            [np.ones(2, np.float32)] * 9,
            {"protocol": "paper", "rho": 1e-30},
            ConfigError,
            "rounding in float32 exceeds 1",
        ),
        ([np.ones(2)] * 9, {"protocol": "paper", "rho": "a"}, ConfigError, "rho must be a number"),
        ([np.ones(2)] * 9, {"iterations": 2.5}, ConfigError, "whole number"),
        ([np.ones(2)] * 9, {"iteration": 2}, ConfigError, "did you mean 'iterations'"),
        ([np.ones(2)] * 9, {"collusion": 2}, ConfigError, "collusion is for the protocols"),
        ([np.ones(2)] * 9, {"chunk": -1}, ConfigError, "at least 1"),
    ],
)
def test_natural_mistakes_get_an_error_that_says_what_to_do(inputs, options, error, message):
    with pytest.raises(error, match=message):
        securedfl.average(inputs, **options)
