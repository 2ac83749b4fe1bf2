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
def importable(tmp_path, monkeypatch):
    """Return a function that writes a module of the user's into the current folder, and returns that."""
    names = []

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        names.append(name)
        return tmp_path

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def module(importable):
    """A module of the user's in the current folder."""
    return importable("my_app", SOURCE)
