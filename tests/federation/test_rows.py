"""Rows, summaries and events as files and other processes hold them: the same text as ever, and back."""

import json
import math

import pytest

from securedfl.errors import RunFolderError
from securedfl.federation.peers.events import (
    AllDone,
    Back,
    Certified,
    Ignored,
    Lost,
    PeerStatus,
    Phase,
    Resumed,
    Staying,
    Unfit,
    Waiting,
    from_json,
    to_json,
)
from securedfl.federation.peers.telemetry import Metric, prometheus
from securedfl.federation.run_folder.metrics import PeerRow, Row, read_rows, to_line, write_table
from securedfl.privacy.ledger import Tried

ROW = Row(
    method="secured",
    round=1,
    accuracy=0.5,
    loss=1.25,
    peer_accuracy=(0.25, 0.75),
    peer_loss=(1.0, 1.5),
    error_mse=1e-17,
    bytes_per_peer=10.0,
    train_seconds=2.0,
)
PEER_ROW = PeerRow(
    method="secured",
    round=2,
    train_loss=None,
    train_seconds=1.0,
    average_seconds=0.5,
    wait_seconds=0.25,
    members=("a", "b"),
    attempts=1,
    tried=(Tried(0, 1, (0, 1), True),),
    fetched=False,
    void=False,
    bytes_out=7,
    bytes_in=8,
    samples=9,
)


def test_a_row_is_the_line_that_it_always_was(tmp_path):
    line = to_line(ROW)
    assert line == (
        '{"method": "secured", "round": 1, "accuracy": 0.5, "loss": 1.25, "peer_accuracy": [0.25, 0.75], '
        '"peer_loss": [1.0, 1.5], "train_loss": null, "error_mse": 1e-17, "error_max": null, "bytes_per_peer": 10.0, '
        '"train_seconds": 2.0, "average_seconds": 0.0}'
    )
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    assert read_rows(tmp_path, Row) == [ROW]
    write_table(tmp_path, [ROW])
    assert (tmp_path / "metrics.csv").read_text() == (
        "method,round,accuracy,loss,train_loss,error_mse,error_max,bytes_per_peer,clipped,train_seconds,average_seconds,"
        "common_accuracy,common_loss,epsilon\n"
        "secured,1,0.5,1.25,,1e-17,,10.0,,2.0,0.0,,,\n"
    )


def test_a_peers_row_is_the_line_that_it_always_was(tmp_path):
    line = to_line(PEER_ROW)
    assert line == (
        '{"method": "secured", "round": 2, "train_loss": null, "train_seconds": 1.0, "average_seconds": 0.5, '
        '"wait_seconds": 0.25, "members": ["a", "b"], "attempts": 1, '
        '"tried": [{"epoch": 0, "attempt": 1, "members": [0, 1], "opened": true}], "fetched": false, "void": false, '
        '"bytes_out": 7, "bytes_in": 8, "samples": 9}'
    )
    scored = {**json.loads(line), "correct": 3, "loss": 4.5, "count": 6}
    (tmp_path / "metrics.jsonl").write_text(line + "\n" + json.dumps(scored) + "\n")
    bare, found = read_rows(tmp_path, PeerRow)
    assert (bare, bare.score) == (PEER_ROW, None)
    assert (found.score.correct, found.score.loss, found.score.count) == (3, 4.5, 6)


def test_numbers_that_are_not_finite_are_null_on_disk(tmp_path):
    """A model that fails must not end the run with an error of its own."""
    failed = Row(method="local", round=0, accuracy=0.1, loss=math.inf, peer_loss=(math.nan, 2.0))
    values = json.loads(to_line(failed))
    assert (values["loss"], values["peer_loss"]) == (None, [None, 2.0])
    (tmp_path / "metrics.jsonl").write_text(to_line(failed) + "\n")
    (found,) = read_rows(tmp_path, Row)
    assert math.isnan(found.loss)
    assert math.isnan(found.peer_loss[0])
    write_table(tmp_path, [failed])
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1].startswith("local,0,0.1,,")


@pytest.mark.parametrize(
    "line",
    ["{", "3", '{"round": 1}', '{"method": "a", "round": true}', '{"method": "a", "round": 1, "loss": "x"}'],
)
def test_a_line_that_is_no_row_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(to_line(ROW) + "\n" + line + "\n")
    with pytest.raises(RunFolderError, match=r"metrics.jsonl is damaged \(line 2: "):
        read_rows(tmp_path, Row)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Certified("good"), '{"event": "certificate", "sentence": "good"}'),
        (Waiting(("b", "c")), '{"event": "waiting", "missing": ["b", "c"]}'),
        (Lost(("c",)), '{"event": "lost", "peers": ["c"]}'),
        (Back(("c",)), '{"event": "back", "peers": ["c"]}'),
        (Unfit("c", "why"), '{"event": "unfit", "peer": "c", "reason": "why"}'),
        (Resumed(4), '{"event": "resumed", "round": 4}'),
        (AllDone(4), '{"event": "all done", "round": 4}'),
        (Staying(("c",), 9.0), '{"event": "staying", "peers": ["c"], "seconds": 9.0, "asking": []}'),
        (Ignored("why"), '{"event": "ignored", "reason": "why"}'),
        (Phase("training", 5), '{"event": "phase", "phase": "training", "round": 5}'),
        (
            PeerStatus("ready", 1, 2, 3, 4),
            '{"event": "status", "phase": "ready", "round": 1, "bytes_in": 2, "bytes_out": 3, "rounds": 4}',
        ),
        (PEER_ROW, '{"event": "round", ' + to_line(PEER_ROW)[1:]),
    ],
)
def test_events_travel_as_lines(event, text):
    assert to_json(event) == text
    assert from_json(text + "\n") == event


@pytest.mark.parametrize("line", ["", "noise", "[]", '{"event": "other"}', '{"event": "resumed", "round": "x"}'])
def test_what_is_no_event_is_passed_over(line):
    assert from_json(line) is None


def test_prometheus_is_told_what_a_number_is():
    metrics = [
        Metric("round", "gauge", "Where we are.", 3),
        Metric("refused_total", "counter", "By kind.", {'a "b"': 2, "A": 1}),
    ]
    assert prometheus(metrics) == (
        "# HELP securedfl_round Where we are.\n"
        "# TYPE securedfl_round gauge\n"
        "securedfl_round 3\n"
        "# HELP securedfl_refused_total By kind.\n"
        "# TYPE securedfl_refused_total counter\n"
        'securedfl_refused_total{kind="A"} 1\n'
        'securedfl_refused_total{kind="a \\"b\\""} 2\n'
    )
