"""A run folder that is incomplete or damaged gives an error that says what to do, and keeps the old report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from securedfl.designs import Design
from securedfl.errors import RunFolderError
from securedfl.federation.run_folder.reader import read_run
from securedfl.reporting.report import write_report

MakeRun = Callable[..., Path]


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"no run folder .*absent; give the folder that"):
        write_report(tmp_path / "absent")


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl", "config.toml", "design.json"])
def test_missing_file(make_run: MakeRun, name: str) -> None:
    folder = make_run()
    (folder / name).unlink()
    with pytest.raises(RunFolderError, match=f"has no {name}.*--resume"):
        write_report(folder)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("summary.json", "{", "Expecting"),
        ("summary.json", "[]", "not a JSON object"),
        ("summary.json", '{"rounds": 3}', "missing required field `peers`"),
        (
            "summary.json",
            '{"peers": 9, "rounds": 3, "methods": []}',
            "Expected `object`, got `array` - at `\\$.methods`",
        ),
        ("summary.json", '{"peers": 9, "rounds": 3, "finished": "yes"}', "Expected `bool`.*finished"),
        (
            "summary.json",
            '{"peers": 9, "rounds": 3, "methods": {"a": {"best_accuracy": "x"}}}',
            "best_accuracy",
        ),
        ("metrics.jsonl", '{"method": "local"', "line 1"),
        ("metrics.jsonl", "3\n", "line 1: Expected `object`"),
        ("metrics.jsonl", '{"method": "local"}\n', "line 1: .*missing required field `round`"),
        ("metrics.jsonl", '{"method": 3, "round": 1}\n', "line 1: Expected `str`.*method"),
        ("metrics.jsonl", '{"method": "local", "round": -1}\n', "line 1: Expected `int` >= 0.*round"),
        (
            "metrics.jsonl",
            '{"method": "local", "round": 1, "loss": "low"}\n',
            "line 1: Expected `float`.*loss",
        ),
        ("metrics.jsonl", '{"method": "local", "round": 1, "loss": 1%s}\n' % ("0" * 400), "out of range"),
        (
            "metrics.jsonl",
            '{"method": "local", "round": 1, "peer_accuracy": 3}\n',
            "line 1: Expected `array`.*peer_accuracy",
        ),
        ("config.toml", "peers = ", "Invalid value"),
        ("design.json", "{}", "not a design"),
        ("certificate.json", "nothing", "Expecting value"),
        ("ledger.json", "", "Expecting value"),
    ],
)
def test_damaged_file(make_run: MakeRun, name: str, content: str, reason: str) -> None:
    folder = make_run()
    (folder / "report.html").write_text("the old report")
    (folder / name).write_text(content)
    with pytest.raises(RunFolderError, match=f"{name} is damaged .*{reason}.*restore it from a copy"):
        write_report(folder)
    assert (folder / "report.html").read_text() == "the old report"


@pytest.mark.parametrize(
    ("inside", "advice"),
    [("", "securedfl train "), ("federation/", "securedfl up "), ("state/journal", "start this peer again")],
)
def test_advice_for_a_damaged_file_is_for_the_kind_of_run(make_run: MakeRun, inside: str, advice: str) -> None:
    folder = make_run()
    (folder / inside).parent.mkdir(exist_ok=True)
    (folder / inside).mkdir(exist_ok=True)
    (folder / "ledger.json").write_text("")
    with pytest.raises(RunFolderError, match=f"ledger.json is damaged .*{advice}"):
        write_report(folder)


def test_text_that_is_not_utf8(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "metrics.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(RunFolderError, match="not UTF-8 text"):
        write_report(folder)


def test_design_of_another_run(make_run: MakeRun) -> None:
    folder = make_run()
    Design.everyone(9).save(folder / "design.json")
    with pytest.raises(RunFolderError, match="but this run used"):
        write_report(folder)


def test_summary_figures_win_and_gaps_are_filled_from_the_rounds(make_run: MakeRun) -> None:
    folder = make_run(methods=("secured",))
    summary = json.loads((folder / "summary.json").read_text())
    summary["methods"]["secured"] = {"best_accuracy": 0.5, "final_accuracy": None}
    (folder / "summary.json").write_text(json.dumps(summary))
    method = read_run(folder).methods[0]
    assert method.best_accuracy == 0.5
    assert method.final_accuracy == pytest.approx(0.95787, abs=1e-5)
    assert method.train_seconds == 6.0
    assert method.average_seconds == 1.75
    assert method.bytes_per_peer_per_round == 480_000


def test_a_round_written_twice_counts_once_and_the_later_line_holds(make_run: MakeRun) -> None:
    folder = make_run(methods=("secured",))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"method": "secured", "round": 6, "accuracy": 0.25}\n')
    method = read_run(folder).methods[0]
    assert [row.round for row in method.rounds] == list(range(7))
    assert method.rounds[-1].accuracy == 0.25


def test_a_report_that_cannot_be_written_leaves_nothing_behind(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run()

    def full(path: Path, *_args: object, **_options: object) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    before = sorted(folder.iterdir())
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RunFolderError, match=r"report.html: No space left on device; .*securedfl report"):
        write_report(folder)
    assert sorted(folder.iterdir()) == before
