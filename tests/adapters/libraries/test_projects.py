"""What `securedfl new` writes for Hugging Face and Lightning runs as it is."""

from __future__ import annotations

import sys

import pytest

from securedfl.federation.founding.project import new_project
from securedfl.federation.train import train


@pytest.mark.parametrize("framework", ["huggingface", "lightning"])
def test_a_new_project_learns(framework, tmp_path, monkeypatch):
    new_project(tmp_path / "project", framework)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.syspath_prepend(tmp_path / "project")
    sys.modules.pop("app", None)
    try:
        summary = train("app:make", peers=4, rounds=3, methods="secured", protocol="shares", out=tmp_path / "run")
    finally:
        sys.modules.pop("app", None)
    assert summary.methods["secured"].final_accuracy > 0.55
    assert summary.methods["secured"].final_common_accuracy > 0.55
