"""Errors that cross from one process to another, and those of calls with wrong names or types."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import securedfl
from securedfl import errors
from securedfl.experiments.presets import whole_numbers
from securedfl.federation.peers.config import FederationConfig
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.simulation.driver import NotFiniteError


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigError("unknown key"),
        errors.MissingDependencyError("torch is missing"),
        UnencodableError(7, "is beyond the range", peer=2, name="weight"),
        NotFiniteError(1, 3, float("nan")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_another_process_is_the_same_kind_with_the_same_text(error):
    found = errors.rebuilt(type(error).__name__, str(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.exit_code == error.exit_code


VECTORS = [np.ones(3)] * 9


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"colusion": 1}, "unknown option of the protocol 'grouped': 'colusion'; did you mean 'collusion'?"),
        ({"wieghts": [1] * 9}, "did you mean 'weights'?"),
        ({"groupsize": 3}, "did you mean 'group_size'?"),
        ({"rnage": 3.0}, "did you mean 'range'? (known: bits, codec, iterations, range)"),
        (
            {"collusion": 2},
            'collusion is for the protocols "resilient" and "shares"; \'grouped\' would promise nothing',
        ),
        ({"protocol": "plain", "x": 1}, "unknown option of the protocol 'plain': 'x' (known: none)"),
        ({"protocol": 3}, "unknown protocol '3' (known: "),
        ({"protocol": ["grouped"]}, "did you mean 'grouped'?"),
        ({"protocol": "shares", "strength": "2"}, "the strength must be a whole number, not '2'"),
        ({"protocol": "shares", "strength": 2.0}, "the strength must be a whole number, not 2.0"),
        (
            {"protocol": "shares", "range": "3", "weights": [1] * 9},
            "the range must be a positive finite number, not '3'",
        ),
        ({"range": "3", "weights": [1] * 9}, "the range must be a positive finite number, not '3'"),
        ({"range": 10**400}, "the range must be a positive finite number"),
        ({"round": 1.5}, "the round must be a whole number, not 1.5"),
        ({"round": None}, "the round must be a whole number, not None"),
        ({"round": -1}, "the round must be at least 0, not -1"),
        ({"chunk": "1"}, "the chunk must be a whole number, not '1'"),
        ({"chunk": 0}, "the chunk must be at least 1, not 0"),
        ({"threads": 0.5}, "the number of threads must be a whole number, not 0.5"),
        ({"dtype": "x"}, 'the dtype must be "float32" or "float64", not \'x\''),
        ({"iterations": 10**29}, "iterations are too many: two give the exact average"),
        ({"design": "design.json"}, "design must be a Design, not 'design.json'; Design.load reads one from a file"),
    ],
)
def test_a_wrong_call_of_average_is_told(options, text):
    for call in (securedfl.average, securedfl.average_):
        with pytest.raises(errors.ConfigError) as told:
            call([vector.copy() for vector in VECTORS], **options)
        assert text in str(told.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"peers": 9, "colusion": 1}, "did you mean 'collusion'?"),
        ({"peers": 9, "ronds": 1}, "did you mean 'rounds'?"),
        ({"peers": 9, "protocol": 3}, "unknown protocol '3' (known: "),
        ({"design": 3}, "design must be a Design, not 3"),
        ({"peers": 9, "collusion": -1}, "the collusion must be at least 0, not -1"),
        ({"peers": 9, "collusion": 1.0}, "the collusion must be a whole number, not 1.0"),
        ({"peers": 9, "collusion": "1", "protocol": "classic"}, "the collusion must be a whole number, not '1'"),
        ({"peers": 9, "rounds": 0}, "the number of rounds must be at least 1, not 0"),
        ({"peers": 9, "protocol": "shares", "strength": 0}, "a strength of 0 needs that many partitions"),
    ],
)
def test_a_wrong_call_of_certify_is_told(options, text):
    with pytest.raises(errors.ConfigError) as told:
        securedfl.certify(**options)
    assert text in str(told.value)


@pytest.mark.parametrize("largest", ["x", "3", 0, -1, float("nan"), 10**400])
def test_the_largest_weight_is_a_positive_number(largest):
    with pytest.raises(errors.InvalidInputError, match="max_weight must be a positive finite number, not"):
        securedfl.average(VECTORS, weights=[1.0] * 9, max_weight=largest)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("load", "run folder"),
        ("resume", "run folder"),
        ("join", "settings of the site"),
        ("read_folder", "data folder"),
    ],
)
@pytest.mark.parametrize("given", [3, None, b"runs"])
def test_what_is_no_path_is_told(name, what, given):
    with pytest.raises(errors.ConfigError, match=rf"^the {what} must be given as a path, not {given!r}$"):
        getattr(securedfl, name)(given)


@pytest.mark.parametrize("name", ["KeyError", "", "object"])
def test_what_is_no_error_of_ours_is_not_rebuilt(name):
    assert errors.rebuilt(name, "text") is None


@pytest.mark.parametrize("name", ["load", "resume", "read_folder"])
def test_folders_that_may_not_be_read_are_told(name, tmp_path, monkeypatch):
    """As the system tells others than root."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(errors.RunFolderError, match="may not be read; mend its rights, or name another"):
        getattr(securedfl, name)(tmp_path)

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(errors.RunFolderError, match=f"cannot look at {tmp_path}: Permission denied; mend its rights"):
        getattr(securedfl, name)(tmp_path)


def test_long_lists_are_cut_and_bounds_are_told():
    entries = tuple({"name": f"p{k}", "address": f"h:{k + 1}", "fingerprint": "a" * 64} for k in range(300))
    with pytest.raises(errors.ConfigError, match="must be a list of 256 at most") as told:
        FederationConfig.resolve({"peers": entries})
    assert len(str(told.value)) < 400
    with pytest.raises(errors.ConfigError, match="must be a list of 2 or more"):
        FederationConfig.resolve({"peers": entries[:1]})


def test_seeds_have_a_bound():
    with pytest.raises(errors.ConfigError, match="more than 1,000 of them are too many"):
        whole_numbers("0-99999999", "--seeds")
