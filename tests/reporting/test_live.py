"""The live page: what follows from files and the time, and a server that gives it to browsers on this machine only."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from securedfl.errors import ConfigError
from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.live import Live, Simulation, beating, read_live, write_live
from securedfl.federation.run_folder.metrics import PeerRow, Row
from securedfl.privacy.ledger import Tried
from securedfl.reporting.live import server
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


@pytest.fixture
def address(make_run: MakeRun) -> Iterator[tuple[str, int, Path]]:
    folder = make_run(done=2)
    with server.serving(folder, token=False) as url:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        yield "127.0.0.1", parts.port or 0, folder


def ask(
    address: tuple[str, int, Path], path: str = "/", method: str = "GET", host: str | None = None
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(address[0], address[1], timeout=5)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def test_the_page_comes_with_a_strict_policy_and_needs_nothing_from_elsewhere(address: tuple[str, int, Path]) -> None:
    answer, body = ask(address)
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["Access-Control-Allow-Origin"] is None
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "http" not in body.replace("http-equiv", "")
    assert "SecureD-FL" in body
    for path, kind in server.STATIC.items():
        answer, body = ask(address, f"/{path}")
        assert (answer.status, answer.headers["Content-Type"]) == (200, kind)
        assert body


def test_only_reading_and_only_known_paths(address: tuple[str, int, Path]) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(address, "/", method)[0].status == 501
    for path in ("/metrics.jsonl", "/../config.toml", "/%2e%2e/config.toml", "/state/journal", "/events/x"):
        assert ask(address, path)[0].status == 404


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:80", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_name_that_was_pointed_here_is_refused(address: tuple[str, int, Path], host: str) -> None:
    assert ask(address, host=host)[0].status == 403
    assert ask(address, "/events", host=host)[0].status == 403


def test_localhost_is_a_name_of_this_machine(address: tuple[str, int, Path]) -> None:
    assert ask(address, host=f"localhost:{address[1]}")[0].status == 200


def test_nothing_is_told_without_the_token(make_run: MakeRun) -> None:
    folder = make_run(done=2)
    with server.serving(folder) as url, server.serving(folder) as other:
        token = urlsplit(url).path.strip("/")
        # 128 bits, and another one each time
        assert len(token) >= 22
        assert token != urlsplit(other).path.strip("/")
        place = ("127.0.0.1", urlsplit(url).port or 0, folder)
        names = ("", "snapshot.json", "events", *server.STATIC)
        for name in names:
            for before in ("", token[:-1], token + "x", "%00", "ü", token.swapcase()):
                assert ask(place, quote(f"/{before}/{name}" if before else f"/{name}"))[0].status == 403
            if name != "events":
                assert ask(place, f"/{token}/{name}")[0].status == 200
        # what the page asks for lies beside it
        assert "/page.css" not in ask(place, f"/{token}/")[1]
        assert ask(place, f"/{token}")[0].status == 404
        assert ask(place, f"/{token}/", host="attacker.example")[0].status == 403


def test_the_snapshot_is_there_as_json(address: tuple[str, int, Path]) -> None:
    answer, body = ask(address, "/snapshot.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(body)["curves"]["SecureD-FL"][0] == [0, pytest.approx(0.1)]


def next_event(answer: http.client.HTTPResponse) -> dict[str, str]:
    while not (line := answer.fp.readline()).startswith(b"data: "):
        assert line, "the stream ended"
    found: dict[str, str] = json.loads(line[6:])
    return found


def test_events_come_when_something_changes(address: tuple[str, int, Path]) -> None:
    connection = http.client.HTTPConnection(address[0], address[1], timeout=10)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert "77.25 %" not in next_event(answer)["html"]
    with (address[2] / "metrics.jsonl").open("a") as file:
        file.write('{"method": "secured", "round": 3, "accuracy": 0.7725}\n')
    assert "77.25 %" in next_event(answer)["html"]
    connection.close()


def test_connections_are_bounded(address: tuple[str, int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    held = [socket.create_connection(address[:2], timeout=5) for _ in range(server.MOST_CONNECTIONS)]
    try:
        deadline = time.monotonic() + 5
        while sum(t.name.startswith("Thread-") for t in threading.enumerate()) < server.MOST_CONNECTIONS:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            ask(address)
    finally:
        for one in held:
            one.close()


def test_a_port_that_is_taken_is_a_clear_error(address: tuple[str, int, Path]) -> None:
    with pytest.raises(ConfigError, match="leave --port away"), server.serving(address[2], address[1]):
        pass


def test_snapshots_carry_no_more_than_they_say() -> None:
    """Nothing of a model: what crosses the door is names, counts, accuracies and certificates."""
    fields = {"name", "kind", "state", "round", "rounds", "me", "method", "trained", "peers", "links", "meetings"}
    fields |= {"members", "rows", "curves", "accuracy", "epsilon", "sent", "certificates"}
    assert set(Snapshot.__dataclass_fields__) == fields
