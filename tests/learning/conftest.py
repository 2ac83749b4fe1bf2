"""Folders of made-up data."""

import pytest

from securedfl.learning.data import hub as tables


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Keep decoded arrays out of the user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(tables.DATA_DIR, raising=False)
    return tmp_path / "cache" / "securedfl"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"
