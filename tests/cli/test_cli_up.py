"""`securedfl up`: real peer processes from the command line."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.federation.train import train


def test_peers_count_by_their_samples_as_in_the_simulation(tmp_path):
    settings = {"peers": 3, "rounds": 1, "model": "linear", "protocol": "shares", "dealing": "dirichlet"}
    options = [f"--{name}={value}" for name, value in settings.items()]
    result = CliRunner().invoke(app, ["up", *options, "--weighted", "--json", "--out", str(tmp_path / "up")])
    assert result.exit_code == 0, result.output

    def simulated(*, weighted):
        out = tmp_path / f"weighted {weighted}"
        return train(**settings, methods=("secured",), weighted=weighted, out=out).methods["secured"].final_loss

    found = json.loads(result.stdout)["methods"]["secured"]["final_loss"]
    assert found == pytest.approx(simulated(weighted=True), rel=1e-6)
    assert found != pytest.approx(simulated(weighted=False), rel=1e-3)


def test_a_folder_of_real_peers_is_never_trained_on_as_a_simulation(tmp_path):
    """`securedfl train` would begin at round 0 and write over what the peers measured."""
    folder = tmp_path / "run"
    train(peers=3, rounds=1, model="linear", protocol="shares", methods=("secured",), out=folder)
    (folder / "federation").mkdir()
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    resumed = CliRunner().invoke(app, ["train", "--resume", str(folder), "--rounds", "3"])
    assert resumed.exit_code == 8
    assert "was made by `securedfl up`" in resumed.stderr
    assert "securedfl peer" in resumed.stderr
    for command in ("up", "train"):
        again = CliRunner().invoke(app, [command, "--peers", "3", "--out", str(folder)])
        assert again.exit_code == 8
        assert "choose another --out, or remove the folder" in again.stderr
        assert "--resume" not in again.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == kept


def test_help_shows_no_option_that_is_refused():
    shown = CliRunner().invoke(app, ["up", "--help"], env={"COLUMNS": "200"}).output
    listed = set(re.findall(r"--([a-z-]+)", shown))
    assert {"peers", "rounds", "protocol", "device"} <= listed
    refused = {"methods", "masks", "engine", "workers", "keep-updates", "peers-per-round", "messages-every"}
    assert not refused & listed
    assert "methods" in CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output
    for option in ("--methods=local", "--messages-every=2"):
        told = CliRunner().invoke(app, ["up", option])
        assert (told.exit_code, "is for simulations" in told.stderr) == (4, True)


def test_too_few_peers_are_told_what_this_command_can_do(tmp_path):
    told = CliRunner().invoke(app, ["up", "--peers", "2", "--out", str(tmp_path / "run")])
    assert told.exit_code == 5
    assert "`securedfl train --methods local,fedavg`" in told.stderr
