"""``securedfl budget``: give some, get the rest; and ``--privacy`` of training."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.cli.options import read_privacy
from securedfl.errors import ConfigError
from securedfl.federation.budget.planning import check_privacy
from securedfl.federation.config import TrainConfig

DIGITS = ["--records", "62985", "--collusion", "2", "--parameters", "100000"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "private.toml"


def budget(*arguments):
    return CliRunner().invoke(app, ["budget", *map(str, arguments)], env={"COLUMNS": "120"})


@pytest.mark.parametrize(
    ("given", "key", "value", "within"),
    [
        (["--sigma", 1.5, "--rounds", 308, "--batch", 2048], "epsilon_at_the_end", 2.02, 0.01),
        (["--epsilon", 2, "--rounds", 308, "--batch", 2048], "noise_multiplier", 1.51, 0.01),
        (["--epsilon", 2, "--sigma", 1.5, "--batch", 2048], "rounds", 300, 10),
        (["--epsilon", 2, "--sigma", 1.5, "--rounds", 308], "sampling", 2028 / 62_985, 1e-3),
    ],
)
def test_give_some_get_the_rest(given, key, value, within):
    result = budget(*given, *DIGITS, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found[key] == pytest.approx(value, abs=within)
    kinds = found["kinds"]
    assert kinds["local"]["noise_in_mean"] / kinds["distributed"]["noise_in_mean"] == pytest.approx(7**0.5)
    assert kinds["central"]["epsilon_by_privacy_loss"] < kinds["central"]["epsilon"]
    by = list(found["epsilon_by_colluders"].values())
    assert by == sorted(by)


def test_a_table_and_a_picture(tmp_path):
    path = tmp_path / "budget.svg"
    result = budget("--sigma", 1.5, "--rounds", 308, "--batch", 2048, *DIGITS, "--picture", path)
    assert result.exit_code == 0, result.output
    for word in ("distributed", "local", "central", "Any 2 of 9 peers learn only the total", "epsilon 2.02"):
        assert word in result.output
    assert path.read_text().startswith("<?xml")


def test_a_picture_that_cannot_be_written_is_told(tmp_path):
    path = tmp_path / "nowhere" / "budget.svg"
    result = budget("--sigma", 1.5, "--rounds", 308, "--batch", 2048, *DIGITS, "--picture", path)
    assert result.exit_code == 8
    assert "make the folder" in result.stderr


def test_sites_that_are_too_few_are_told():
    result = budget("--unit", "site", "--sigma", 5, "--rounds", 50, "--collusion", 2)
    assert "9 sites are too few for this noise" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--sigma", 1.5, *DIGITS], "exactly one of"),
        (["--sigma", 1.5, "--rounds", 3, "--epsilon", 1, "--batch", 9, *DIGITS], "exactly one of"),
        (["--sigma", 1.5, "--rounds", 3, "--batch", 9], "--records"),
        (["--sigma", -1, "--rounds", 3, "--batch", 9, *DIGITS], "above 0"),
        (["--sigma", 1, "--rounds", 3, "--batch", 70000, *DIGITS], "only 62985 records"),
        (["--sigma", 1, "--rounds", 3, "--batch", 9, *DIGITS, "--delta", 0.1], "not below 1/62985"),
        (["--unit", "site", "--sigma", 1, "--rounds", 3, "--batch", 9], "for --unit record"),
        (["--sigma", 1, "--rounds", 3, "--batch", 9, *DIGITS, "--picture", "x.gif"], ".svg or .png"),
        (["--sigma", 1, "--rounds", 3, "--batch", 9, "--records", 50000, "--collusion", 9], "1 to 8 members"),
    ],
)
def test_bad_questions(given, text):
    result = budget(*given)
    assert result.exit_code == 4, result.output
    assert text in " ".join(result.output.split())


def test_the_option_is_the_table():
    assert read_privacy("unit=site, clip=1,epsilon=8.5,delta=1e-3,records=5") == {
        "unit": "site",
        "clip": 1,
        "epsilon": 8.5,
        "delta": 1e-3,
        "records": 5,
    }
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        read_privacy("unit")


def test_the_example_holds():
    config = TrainConfig.resolve(tomllib.loads(EXAMPLE.read_text()))
    check_privacy(config)
    assert config.privacy is not None
    assert config.privacy.unit == "record"
