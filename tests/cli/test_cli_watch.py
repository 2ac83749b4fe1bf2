"""``securedfl watch`` and ``--watch``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.errors import ConfigError
from securedfl.federation.run_folder.live import read_live

ADDRESS = re.compile(r"Watch it at http://127\.0\.0\.1:\d+/[\w-]{22}/")


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["watch", str(tmp_path / "absent")])
    assert result.exit_code == 8
    assert "to watch; give that of a run" in result.output


def test_training_says_where_it_can_be_watched_and_leaves_the_same_folder(tmp_path: Path) -> None:
    options = ["--model", "linear", "--rounds", "1", "--methods", "secured", "--out"]
    result = CliRunner().invoke(app, ["train", "--watch", *options, str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert ADDRESS.search(result.output)
    live = read_live(tmp_path / "run")
    assert live is not None
    assert (live.phase, live.round, live.method) == ("done", 1, "secured")
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_that_fails_before_its_first_round_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise ConfigError("this cannot be trained")

    monkeypatch.setattr("securedfl.federation.train.train_method", fail)
    options = ["--model", "linear", "--methods", "secured", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, ["train", "--watch", *options])
    assert result.exit_code == ConfigError.exit_code
    assert ADDRESS.search(result.output)
    assert not (tmp_path / "run").exists()
