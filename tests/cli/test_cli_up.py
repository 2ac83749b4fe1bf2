"""`securedfl up`: real peer processes from the command line."""

from __future__ import annotations

import json

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
