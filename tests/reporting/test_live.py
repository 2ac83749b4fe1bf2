"""The live page: what follows from files and the time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.live import Live, Simulation, beating, read_live, write_live
from securedfl.federation.run_folder.metrics import PeerRow, Row
from securedfl.privacy.ledger import Tried
from securedfl.reporting.live.folder import Watched
from securedfl.reporting.live.page import page, part
from securedfl.reporting.live.snapshot import SILENT, Content, Snapshot, snapshot

MakeRun = Callable[..., Path]
NOW = 1000.0
NAMES = ("peer-0", "peer-1", "peer-2")


def live(name: str, *, time: float = NOW, present: tuple[str, ...] = NAMES, **more: object) -> Live:
    links = {other: "" for other in NAMES if other != name and other in present}
    told = Live(time=time, phase="training", round=3, rounds=9, name=name, roster=NAMES, present=present, links=links)
    return replace(told, bytes_in=10, bytes_out=20, **more)  # type: ignore[arg-type]


def trial(*lives: Live) -> Content:
    return Content(name="t", kind="trial", peers=3, rounds=9, lives={one.name: one for one in lives})


def peer_row(round: int, correct: int, sent: int) -> PeerRow:
    return PeerRow(
        method="secured",
        round=round,
        train_loss=0.5,
        train_seconds=1.0,
        average_seconds=0.5,
        wait_seconds=0.0,
        members=NAMES,
        attempts=1,
        tried=(Tried(0, 0, (0, 1, 2), True),),
        fetched=False,
        void=False,
        bytes_out=sent,
        bytes_in=sent,
        samples=50,
        epsilon=0.1 * round,
        correct=correct,
        loss=1.0,
        count=10,
    )


def test_all_peers_are_there_and_linked() -> None:
    shown = snapshot(trial(*map(live, NAMES)), NOW)
    assert (shown.state, shown.round, shown.rounds) == ("training", 3, 9)
    assert [peer.phase for peer in shown.peers] == ["training"] * 3
    assert shown.lost == shown.missing == ()
    assert len(shown.links or {}) == 6
    assert shown.sent == 60


def test_a_peer_that_says_nothing_any_more_is_lost() -> None:
    """As after kill -9: the others go on, and nothing but its silence tells."""
    left = ("peer-0", "peer-1")
    content = trial(live("peer-0", present=left), live("peer-1", present=left), live("peer-2", time=NOW - SILENT - 1))
    shown = snapshot(content, NOW)
    assert shown.lost == ("peer-2",)
    assert shown.peers[2].silent == SILENT + 1
    assert shown.state == "training"
    assert set(shown.links or {}) == {("peer-0", "peer-1"), ("peer-1", "peer-0")}
    assert shown.missing == ()
    assert snapshot(content, NOW + 60).state == "silent"


def test_a_peer_that_ended_is_not_lost_however_long_ago() -> None:
    shown = snapshot(trial(*(live(name, time=NOW - 999) for name in NAMES)), NOW)
    assert shown.lost == NAMES
    done = [replace(live(name, time=NOW - 999), phase="done") for name in NAMES]
    shown = snapshot(trial(*done), NOW)
    assert shown.lost == ()
    assert shown.state == "done"
    assert shown.over


def test_two_peers_without_a_link_are_shown() -> None:
    one, two, three = map(live, NAMES)
    cut = [replace(one, links={"peer-2": ""}), replace(two, links={"peer-2": "peer-0"}), three]
    cut[2] = replace(three, links={"peer-0": "", "peer-1": "peer-0"})
    shown = snapshot(trial(*cut), NOW)
    assert shown.missing == (("peer-0", "peer-1"),)
    assert "stroke-dasharray" in part(shown)


def test_a_real_peer_shows_what_it_knows_of_the_others() -> None:
    me = live("peer-1", present=("peer-0", "peer-1"), ready=("peer-0",))
    content = Content(name="out", kind="peer", lives={"peer-1": me})
    shown = snapshot(content, NOW)
    assert [(peer.name, peer.phase, peer.here) for peer in shown.peers] == [
        ("peer-0", "trained", True),
        ("peer-1", "training", True),
        ("peer-2", "lost", False),
    ]
    assert shown.me == "peer-1"
    # it does not know how the others are linked among themselves
    assert shown.missing == ()
    silent = snapshot(content, NOW + 60)
    assert silent.state == "silent"
    assert [peer.phase for peer in silent.peers] == ["unknown", "lost", "unknown"]


def test_the_rounds_of_real_peers_are_pooled() -> None:
    rows = {name: [peer_row(r, 4 + r + at, 100 * (r + 1)) for r in range(3)] for at, name in enumerate(NAMES)}
    shown = snapshot(replace(trial(*map(live, NAMES)), peer_rows=rows), NOW)
    assert shown.curves["SecureD-FL"] == ((0, 15 / 30), (1, 18 / 30), (2, 21 / 30))
    assert shown.accuracy == 21 / 30
    assert shown.epsilon == pytest.approx(0.2)
    assert [row.bytes_per_peer for row in shown.rows] == [100, 100, 100]


def test_a_simulation_shows_the_method_that_trains() -> None:
    rows = tuple(Row(method=m, round=r, accuracy=a) for m, a in (("local", 0.9), ("secured", 0.5)) for r in (0, 1))
    now = Live(time=NOW, phase="training", round=2, rounds=4, method="secured", trained=2)
    content = Content(name="s", kind="simulation", peers=3, rounds=4, rows=rows, lives={"": now}, meetings=((0, 1, 2),))
    shown = snapshot(content, NOW)
    assert shown.method == "SecureD-FL"
    assert shown.accuracy == 0.5
    assert [peer.phase for peer in shown.peers] == ["trained", "trained", "waiting"]
    assert shown.links is None
    assert "2 of 3" in page(shown)
    assert snapshot(Content(name="s", kind="peer"), NOW).state == "starting"


def test_names_are_escaped() -> None:
    evil = "<script>alert(1)</script>"
    shown = snapshot(replace(trial(live(evil), live("peer-1")), name=evil), NOW)
    assert evil not in page(shown)
    assert evil not in json.loads(json.dumps({"html": part(shown)}))["html"]


@pytest.mark.parametrize("peers", [3, 99, 400])
def test_a_page_of_many_peers_stays_small(peers: int) -> None:
    names = tuple(f"peer-{n}" for n in range(peers))
    each = [
        replace(live(name), roster=names, present=names, links={other: "" for other in names if other != name})
        for name in names
    ]
    assert len(part(snapshot(trial(*each), NOW))) < 20_000 + 700 * peers


def test_live_json_is_written_read_and_never_stops_a_run(tmp_path: Path) -> None:
    write_live(tmp_path, live("a"))
    assert read_live(tmp_path) == live("a")
    write_live(tmp_path / "absent", live("a"))
    assert read_live(tmp_path / "absent") is None
    (tmp_path / "live.json").write_text("{")
    assert read_live(tmp_path) is None


@pytest.mark.parametrize(("error", "end"), [(None, "done"), (ValueError, "failed"), (KeyboardInterrupt, "stopped")])
def test_the_last_beat_says_how_it_ended(tmp_path: Path, error: type[BaseException] | None, end: str) -> None:
    def run() -> None:
        with beating(tmp_path, lambda: live("a")):
            assert read_live(tmp_path) == live("a")
            if error is not None:
                raise error

    if error is None:
        run()
    else:
        with pytest.raises(error):
            run()
    found = read_live(tmp_path)
    assert found is not None
    assert found.phase == end


def test_a_simulation_tells_its_phases() -> None:
    heard: list[int] = []

    class Other(Observer):
        def peers_trained(self, count: int) -> None:
            heard.append(count)

    told = Simulation(TrainConfig.resolve({"peers": 3, "rounds": 2}), Other())
    told.method_started("secured", None)
    assert (told.now().phase, told.now().round) == ("averaging", 0)
    told.round_finished(Row(method="secured", round=0, bytes_per_peer=7))
    for count in (1, 2, 3):
        told.peers_trained(count)
    assert heard == [1, 2, 3]
    assert (told.now().phase, told.now().round, told.now().trained) == ("averaging", 1, 3)
    told.round_finished(Row(method="secured", round=1, bytes_per_peer=7))
    assert (told.now().phase, told.now().round, told.now().bytes_out) == ("training", 2, 14)
    told.method_started("shares", 1)
    assert (told.now().method, told.now().phase, told.now().round) == ("shares", "training", 2)


def test_a_folder_is_read_while_it_is_written(make_run: MakeRun) -> None:
    folder = make_run(done=2)
    (folder / "config.toml").write_text('peers = 9\nrounds = 6\nprotocol = "grouped"\n')
    (folder / "summary.json").unlink()
    write_live(folder, Live(time=time.time(), phase="training", round=3, rounds=6, method="secured", trained=4))
    watched = Watched(folder)
    content = watched.read()
    assert (content.kind, content.peers, content.rounds, len(content.rows)) == ("simulation", 9, 6, 9)
    # two partitions are in use in a round of grouped
    assert sorted(peer for group in content.meetings for peer in group) == sorted([*range(9)] * 2)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"method": "secured", "round": 3, "accuracy": 0.5}\n{"method": "sec')
    assert len(watched.read().rows) == 10
    (folder / "certificate.json").write_text('{"verd')
    assert watched.read().certificates == {}
    assert Watched(folder / "nothing yet").read().kind == "peer"


def test_a_folder_of_real_peers_is_read_from_those_of_its_peers(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("peers = 2\nrounds = 3\n")
    for name in NAMES[:2]:
        (tmp_path / "federation" / name).mkdir(parents=True)
        write_live(tmp_path / "federation" / name, live(name))
    content = Watched(tmp_path).read()
    assert content.kind == "trial"
    assert set(content.lives) == set(content.peer_rows) == {"peer-0", "peer-1"}
    own = Watched(tmp_path / "federation" / "peer-0").read()
    assert own.kind == "peer"
    assert set(own.lives) == {"peer-0"}


def test_snapshots_carry_no_more_than_they_say() -> None:
    """Nothing of a model: what crosses the door is names, counts, accuracies and certificates."""
    fields = {"name", "kind", "state", "round", "rounds", "me", "method", "trained", "peers", "links", "meetings"}
    fields |= {"members", "rows", "curves", "accuracy", "epsilon", "sent", "certificates"}
    assert set(Snapshot.__dataclass_fields__) == fields
