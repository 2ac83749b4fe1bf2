"""Errors that cross from one process to another."""

from __future__ import annotations

import pytest

from securedfl import errors
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


@pytest.mark.parametrize("name", ["KeyError", "", "object"])
def test_what_is_no_error_of_ours_is_not_rebuilt(name):
    assert errors.rebuilt(name, "text") is None
