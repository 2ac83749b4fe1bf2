"""What surrounds the portfolio: cache, automatic choice, drawings, the command."""

import json
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from securedfl.cli.design import design as command
from securedfl.designs import Design, best, best_for, cache, portfolio
from securedfl.designs.drawing import draw_svg
from securedfl.errors import DesignError


@pytest.fixture
def small_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "FROM_PEERS", 20)
    return tmp_path / "securedfl"


def test_large_designs_are_remembered(small_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = best(21, 3, 5)
    assert len(list(small_cache.iterdir())) == 1
    monkeypatch.setattr(portfolio, "_searched", None)
    again = best(21, 3, 5)
    assert again == first
    assert again.method == first.method


@pytest.mark.parametrize("damage", ["truncate", "garbage", "flip", "other", "empty"])
def test_a_damaged_cache_is_built_again(small_cache: Path, damage: str) -> None:
    first = best(21, 3, 5)
    (path,) = small_cache.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "garbage":
        content = bytearray(b"not a zip file")
    elif damage == "flip":
        content[len(content) // 3] ^= 0x55
    elif damage == "other":
        best(24, 3, 5)
        content = bytearray(next(p for p in small_cache.iterdir() if p != path).read_bytes())
    else:
        content = bytearray()
    path.write_bytes(bytes(content))
    assert best(21, 3, 5) == first


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    monkeypatch.setattr(cache, "FROM_PEERS", 20)
    assert best(21, 3).gap == 10


def learns_only_the_total(design: Design, strength: int, coalition: tuple[int, ...], first: int) -> bool:
    honest = [p for p in range(design.n) if p not in coalition]
    reached, todo = {honest[0]}, [honest[0]]
    while todo:
        peer = todo.pop()
        for i in range(first, first + strength):
            group = design.group(peer, i)
            if not set(group) & set(coalition):
                todo += [p for p in group if p not in reached]
                reached.update(group)
    return len(reached) == len(honest)


@pytest.mark.parametrize(("n", "collusion"), [(5, 1), (9, 1), (9, 2), (12, 2), (15, 3), (16, 1)])
def test_the_choice_withstands_every_coalition(n: int, collusion: int) -> None:
    choice = best_for(n, collusion)
    assert choice.exhaustive
    assert choice.strength > collusion
    for first in range(choice.design.gap):
        if first % choice.strength == 0:
            for coalition in combinations(range(n), collusion):
                assert learns_only_the_total(choice.design, choice.strength, coalition, first)


def test_the_choice_may_be_narrowed_and_says_what_can_be_met() -> None:
    assert best_for(9, 2, group_size=3).strength == 3
    assert best_for(15, 6, group_size=3).strength == 7
    assert best_for(9, 0).strength == 1
    with pytest.raises(DesignError, match="at most 7"):
        best_for(9, 8)
    with pytest.raises(DesignError, match=r"in groups of 3 withstands 5 colluders; \d can be"):
        best_for(9, 5, group_size=3)
    with pytest.raises(DesignError, match="whole number"):
        best_for(9, -1)


@pytest.mark.parametrize(("n", "s"), [(3, 3), (7, 2), (9, 3), (31, 4), (60, 3), (61, 3), (150, 5)])
def test_drawings_are_well_formed(n: int, s: int) -> None:
    design = best(n, s)
    root = ElementTree.fromstring(draw_svg(design, 3))  # noqa: S314
    assert root.tag.endswith("svg")
    assert root.get("viewBox")
    text = " ".join(element.text or "" for element in root.iter() if element.text)
    assert ("more partitions" in text) == (design.gap > 3)
    assert "http" not in draw_svg(design).replace("http://www.w3.org/2000/svg", "")


def run(*arguments: str) -> str:
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
    assert "randomized" in run("9", "--method", "randomized", "--seed", "3")
    assert "one peer sits out" in run("9", "--group-size", "2")


@pytest.mark.parametrize(
    "arguments",
    [
        ("2",),
        ("9", "--group-size", "ten"),
        ("9", "--method", "magic"),
        ("9", "--group-size", "auto", "--method", "randomized"),
        ("9", "--out", "/proc/nowhere/design.json"),
    ],
)
def test_the_command_refuses(arguments: tuple[str, ...]) -> None:
    with pytest.raises(DesignError):
        run(*arguments)
