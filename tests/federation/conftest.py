"""A run that several files of tests look at, and an app that several train."""

import sys

import pytest

from tests.federation.tiny_runs import run
from tests.federation.torch_app import SOURCE


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run(folder)
    return folder


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's in the current folder."""
    (tmp_path / "my_app.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("my_app", None)
