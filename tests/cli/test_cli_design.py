"""``securedfl design``, and that every command and the library choose the same design."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import securedfl
from securedfl.cli.audit import audit
from securedfl.cli.design import design as command
from securedfl.designs import Design, best, best_design, strength_for
from securedfl.errors import DesignError, PrivacyError, RunFolderError
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import choose_design


def run(*arguments: str, command: Any = command) -> str:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_command_prints_json(tmp_path: Path) -> None:
    out, svg = tmp_path / "d.json", tmp_path / "d.svg"
    data = json.loads(run("15", "--json", "--out", str(out), "--svg", str(svg)))
    assert (data["peers"], data["group_size"], data["gap"], data["bound"]) == (15, 3, 7, 7)
    assert Design.load(out) == best(15, 3)
    assert svg.read_text().startswith("<svg")


def test_the_command_explains(tmp_path: Path) -> None:
    text = run("15")
    for words in ("upper bound 7 (met)", "Ray-Chaudhuri", "Algorithm 2 finds 5", best(15, 3).hash):
        assert words in text
    assert "and 17 more" in run("60")
    assert "withstand 1 colluder" in run("12", "--group-size", "auto")
    assert "randomized" in run("9", "--group-size", "auto", "--method", "randomized")
    assert "randomized" in run("9", "--method", "randomized", "--seed", "3")
    assert "one peer sits out" in run("9", "--group-size", "2")


@pytest.mark.parametrize(
    "arguments",
    [
        ("2",),
        ("9", "--group-size", "ten"),
        ("9", "--method", "magic"),
    ],
)
def test_the_command_refuses(arguments: tuple[str, ...]) -> None:
    with pytest.raises(DesignError):
        run(*arguments)


@pytest.mark.parametrize("option", ["--out", "--svg"])
def test_a_file_that_cannot_be_written_is_told_as_everywhere(option: str) -> None:
    with pytest.raises(RunFolderError, match=r"cannot write .*make the folder") as refused:
        run("9", option, "/proc/nowhere/design")
    assert refused.value.exit_code == 8


def test_a_wish_that_no_design_meets_is_refused() -> None:
    with pytest.raises(PrivacyError, match="at most 7"):
        run("9", "--group-size", "auto", "--collusion", "8")


class UsedError(Exception):
    """Carries the design of an average out of it."""


def averaged_with(monkeypatch: pytest.MonkeyPatch, n: int, **options: Any) -> Design:
    def caught(protocol: Any, *_: Any, **__: Any) -> None:
        raise UsedError(protocol.design)

    monkeypatch.setattr("securedfl.simulation.average.run", caught)
    with pytest.raises(UsedError) as used:
        securedfl.average([np.zeros(2)] * n, **options)
    return used.value.args[0]


@pytest.mark.parametrize("n", [9, 12, 15, 16, 20, 27, 45])
@pytest.mark.parametrize("collusion", [1, 2])
def test_all_commands_and_the_library_choose_the_same(n: int, collusion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = best_design(n, collusion=collusion)
    wish = ("--collusion", str(collusion))
    assert json.loads(run(str(n), "--group-size", "auto", *wish, "--json"))["hash"] == chosen.hash
    for protocol in ("grouped", "shares", "resilient"):
        found = json.loads(run("--peers", str(n), *wish, "--protocol", protocol, "--json", command=audit))
        assert found["design"] == chosen.hash
        assert securedfl.certify(n, protocol=protocol, collusion=collusion).design == chosen.hash
        if protocol != "grouped":
            assert found["options"]["strength"] == strength_for(chosen, collusion)
            assert found["verdict"] == "only the total"
    for methods in ("secured", "shares", "local,fedavg,secured,shares"):
        settings = {"peers": n, "collusion": collusion, "methods": methods}
        assert choose_design(TrainConfig.resolve(settings)) == chosen
    for protocol in ("shares", "resilient"):
        used = averaged_with(monkeypatch, n, protocol=protocol, collusion=collusion)
        assert used == chosen
    if collusion == 1:
        assert averaged_with(monkeypatch, n) == chosen
