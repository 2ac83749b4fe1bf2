"""What operators change while peers run: more rounds, the end, and the roster; each by a command at one site."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import subprocess
import sys
import threading
import tomllib
from dataclasses import replace

import msgspec
import pytest
from typer.testing import CliRunner

import securedfl
from securedfl.cli import app
from securedfl.cli.peer import describe
from securedfl.errors import ConfigError, PeerLostError
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.events import from_json
from securedfl.federation.peers.local import COMMAND
from securedfl.federation.run_folder.metrics import to_line
from securedfl.network.core.entries import Line, Remove, Settings
from securedfl.network.core.events import Command
from securedfl.network.core.state import State
from securedfl.network.journal import Journal
from securedfl.network.operator import (
    NOTHING_WAITS,
    TAKEN_BACK,
    Desk,
    Wish,
    ask_of,
    pending,
    pending_in_words,
    want,
    withdraw,
)
from securedfl.network.progress import endpoints_of
from securedfl.network.wire import keys as certificates
from tests.federation.test_rows import PEER_ROW
from tests.network import toy
from tests.network.peer_processes import await_text, free_ports
from tests.network.test_peers import check_equal


def command(made, *arguments):
    line = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(line, cwd=made.folder, capture_output=True, text=True, timeout=300, check=False)


def test_more_rounds(federation):
    made = federation(3, protocol="shares", group_size=2, rounds=2, data={0: {"slow_round": 2, "slow_seconds": 20}})
    processes = made.start_all()
    processes[0].wait_for(event="phase", phase="training", round=2)
    done = command(made, "extend", "p1.toml", "--rounds", "4", "--train", "90")
    assert done.returncode == 0, done.stderr
    assert "settings changed" in done.stdout
    assert [process.end() for process in processes] == [0] * 3, [process.errors for process in processes]
    check_equal(made)
    assert [row["round"] for row in made.rows(0)] == [0, 1, 2, 3, 4]
    again = command(made, "extend", "p1.toml", "--rounds", "9", "--wait", "1")
    assert again.returncode == 7
    assert re.search("this site's peer does not run.*the wish stands", again.stderr)


def test_more_rounds_after_the_last_one(federation):
    """Peers that have finished are started again, and stay until the wish that stands is decided."""
    made = federation(3, protocol="shares", group_size=2, rounds=1, deadlines={"absent": 25})
    assert [process.end() for process in made.start_all()] == [0] * 3
    assert json.loads(command(made, "roster", "show", "p1.toml", "--json").stdout)["asked"] == ""
    asked = command(made, "extend", "p1.toml", "--rounds", "3", "--wait", "1")
    assert (asked.returncode, "the wish stands" in asked.stderr) == (7, True)
    shown = command(made, "roster", "show", "p1.toml").stdout
    assert "Asked for at this site, and not decided: settings changed: the last round is 3;" in shown
    assert "`securedfl withdraw PEER.toml` takes it back" in shown
    alone = made.start(1)
    assert alone.end() == 0, alone.errors
    assert "is not decided" in alone.wait_for(event="ignored")["reason"]
    # who has no wish of its own comes first, and waits for the others
    processes = [made.start(k) for k in (0, 2, 1)]
    assert [process.end() for process in processes] == [0] * 3, [process.errors for process in processes]
    check_equal(made)
    assert [[row["round"] for row in made.rows(k)] for k in range(3)] == [[0, 1, 2, 3]] * 3
    assert not (made.folder / "out-p1" / "state" / "wish").exists()


@pytest.mark.parametrize(
    "wish",
    [
        Wish("settings", rounds=2**31),
        Wish("settings", deadlines={"train": 1e300}),
        Wish("settings", deadlines={"train": float("inf")}),
        Wish("settings", deadlines={"train": float("nan")}),
        Wish("stop", reason="x" * 501),
        Wish("add", name="x" * 501),
    ],
)
def test_what_others_could_not_read_is_refused_before_it_is_asked(tmp_path, wish):
    (tmp_path / "journal").write_bytes(b"")
    with pytest.raises(ConfigError, match="out of bounds"):
        want(tmp_path, wish, 0)
    assert not (tmp_path / "wish").exists()


def test_who_looks_takes_no_wish_away_and_who_wishes_again_is_told(tmp_path):
    (tmp_path / "journal").write_bytes(b"")
    first, second = Wish("settings", rounds=7), Wish("settings", rounds=8)
    for wish in (first, Wish("look")):
        with pytest.raises(PeerLostError, match="the wish stands"):
            want(tmp_path, wish, 0)
    desk = Desk(tmp_path)
    # as when a command reads its answer, and removes it, while the desk looks through them
    (tmp_path / "answer-0").symlink_to(tmp_path / "gone")
    state = State("run", (Line(0, "a", "", b"k"),), Settings(3), length=1)
    assert desk.new_command(state, {}, dict) == Command(Settings(8))
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        overtaken = threading.Timer(0.5, lambda: (tmp_path / "wish").write_bytes(msgspec.json.encode(second)))
        overtaken.start()
        with pytest.raises(PeerLostError, match="another wish took the place"):
            want(tmp_path, first, 60)
        overtaken.join()


def test_a_wish_can_be_taken_back_whether_or_not_the_peer_runs(tmp_path):
    (tmp_path / "journal").write_bytes(b"")
    assert withdraw(tmp_path, 0) == NOTHING_WAITS
    with pytest.raises(PeerLostError, match="`securedfl withdraw"):
        want(tmp_path, Wish("remove", name="a"), 0)
    assert pending(tmp_path).kind == "remove"
    assert withdraw(tmp_path, 0) == TAKEN_BACK
    assert pending(tmp_path) is None
    # while it runs: the peer asks for nothing any more, and answers
    state = State("run", (Line(0, "a", "", b"k"), Line(1, "b", "", b"l")), Settings(3), length=1)
    desk = Desk(tmp_path)
    for expected in (NOTHING_WAITS, TAKEN_BACK):
        nothing = Wish("nothing")
        (tmp_path / "wish").write_bytes(msgspec.json.encode(nothing))
        assert pending_in_words(tmp_path, state) == ""
        desk._looked = 0.0
        assert desk.new_command(state, {}, dict) == Command(None)
        answer = json.loads((tmp_path / f"answer-{nothing.number}").read_bytes())
        assert (answer["granted"], answer["text"]) == (True, expected)
        (tmp_path / "wish").write_bytes(msgspec.json.encode(Wish("remove", name="b")))
        assert pending_in_words(tmp_path, state).startswith("b leaves the roster; ")
        desk._looked = 0.0
        assert desk.new_command(state, {}, dict) == Command(Remove(1))


@pytest.mark.parametrize("beat", [0.001, 3600.0])
def test_a_heartbeat_that_makes_no_sense_is_refused(beat):
    state = State("run", (Line(0, "a", "", b"k"),), Settings(3), length=1)
    assert "a heartbeat takes 0.05 to 600 seconds" in ask_of(Wish("settings", deadlines={"heartbeat": beat}), state)


def test_settings_of_two_operators_undo_nothing_of_each_other(federation):
    """Both are asked for before the peers run, so that the second one is wanted of settings that it does not know."""
    made = federation(3, protocol="shares", group_size=2, rounds=1, deadlines={"absent": 120})
    assert [process.end() for process in made.start_all()] == [0] * 3
    command(made, "extend", "p0.toml", "--rounds", "3", "--wait", "0")
    command(made, "extend", "p1.toml", "--train", "9000", "--wait", "0")
    processes = made.start_all()
    assert [process.end() for process in processes] == [0] * 3, [process.errors for process in processes]
    assert [row["round"] for row in made.rows(2)] == [0, 1, 2, 3]
    log = (made.folder / "out-p2" / "peer.log").read_text()
    assert "the last round is 3; deadlines: train 9000 s" in log
    assert not any((made.folder / f"out-p{k}" / "state" / "wish").exists() for k in (0, 1))


def test_a_certificate_of_another_authority_or_of_none_lets_nobody_in(federation, tmp_path):
    made = federation(3, protocol="shares")
    certificates.create_authority(tmp_path / "foreign")
    certificates.issue(tmp_path / "foreign", "p1", [])
    for words, file in (("renew", "p1.crt"), ("add", "p1.crt"), ("add", "ca.crt")):
        told = command(made, "roster", words, "p0.toml", "--certificate", str(tmp_path / "foreign" / file))
        assert (told.returncode, "was not issued by the authority" in told.stderr) == (4, True), told.stderr
    own = PeerConfig.load(made.folder / "p0.toml").files().authority
    told = command(made, "roster", "add", "p0.toml", "--certificate", str(own))
    assert (told.returncode, "cannot be a peer's name" in told.stderr) == (4, True), told.stderr


def test_more_rounds_in_the_file_are_not_ignored_in_silence(federation):
    made = federation(3, protocol="shares", group_size=2, rounds=1, deadlines={"absent": 60})
    assert [process.end() for process in made.start_all()] == [0] * 3
    made.write(train={**made.values["train"], "rounds": 9})
    processes = made.start_all()
    assert [process.end() for process in processes] == [0] * 3, [process.errors for process in processes]
    told = [describe(event) for line in processes[0].events if (event := from_json(json.dumps(line)))]
    assert "all 1 rounds are done; `securedfl extend PEER.toml --rounds N` adds more" in told
    assert any("says rounds = 9, but this run goes to round 1" in text for text in told)
    assert not any("going on" in text for text in told)


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (Wish("stop", reason="enough"), "the run has not begun here yet; end each peer with Ctrl-C"),
        (Wish("settings", rounds=3), "the run has not begun here yet; change federation.toml at all sites"),
        (Wish("remove", name="p1"), "the run has not begun here yet; change federation.toml at all sites"),
    ],
)
def test_before_the_first_round_there_is_nothing_to_change(federation, wish, told):
    state = FederationConfig.resolve(federation(3, protocol="grouped").values).genesis()
    assert str(ask_of(wish, state)).startswith(told)


def test_a_deadline_that_this_site_missed_before_is_warned_of(federation):
    made = federation(3, protocol="shares")
    out = made.folder / "out-p0"
    out.mkdir()
    Journal(out / "state", FederationConfig.resolve(made.values).genesis()).close()
    for option, warned in (("--train", False), ("--average", False)):
        told = command(made, "extend", "p0.toml", option, "1")
        assert (told.returncode, "warning" in told.stderr) == (7, warned)
    rows = [replace(PEER_ROW, round=r, train_seconds=seconds) for r, seconds in enumerate((0.5, 12.25, 3.0))]
    (out / "metrics.jsonl").write_text("".join(to_line(row) + "\n" for row in rows))
    told = command(made, "extend", "p0.toml", "--train", "5")
    assert told.returncode == 7
    assert "warning: this site trained for 12.2 s in round 1, longer than --train 5" in told.stderr
    assert "the wish stands" in told.stderr
    assert "warning" not in command(made, "extend", "p0.toml", "--train", "13").stderr


def test_help_of_extend_is_not_cut():
    shown = CliRunner().invoke(app, ["extend", "--help"], env={"COLUMNS": "80"}).output
    assert "…" not in shown
    assert len(set(re.findall("Seconds [a-z ]+", shown))) >= 5


def test_an_operator_ends_the_run(federation):
    made = federation(3, protocol="grouped", allow_exposure=True, rounds=100_000)
    processes = made.start_all()
    processes[2].wait_for(event="round", round=1)
    looked = command(made, "check", "p1.toml")
    assert looked.returncode == 0, looked.stderr
    assert "p2 hears p0, p1" in " ".join(looked.stdout.replace("│", " ").split())
    processes[0].popen.send_signal(signal.SIGSTOP)
    processes[1].wait_for(event="lost", peers=["p0"])
    hanging = command(made, "check", "p1.toml")
    processes[0].popen.send_signal(signal.SIGCONT)
    assert (hanging.returncode, "nothing is heard from it" in hanging.stderr) == (7, True), hanging.stderr
    processes[1].wait_for(event="back", peers=["p0"])
    done = command(made, "stop", "p2.toml", "--reason", "enough")
    assert done.returncode == 0, done.stderr
    assert [process.end() for process in processes] == [0] * 3, [process.errors for process in processes]
    reasons = [process.wait_for(event="ended")["reason"] for process in processes]
    assert all(re.fullmatch(r".*enough; the model here is that of round \d+ of \d+", one) for one in reasons), reasons
    assert command(made, "stop", "p2.toml", "--wait", "0.1").returncode == 4


def test_an_address_in_the_log_that_is_none_ends_nobody():
    roster = [Line(0, "p0", "127.0.0.1:7443", b"0"), Line(1, "p1", "c2.example.org", b"1"), Line(2, "p2", "", b"2")]
    found = endpoints_of(roster, "p0")
    assert [(one.name, one.listens) for one in found] == [("p0", True), ("p1", False), ("p2", False)]


def check_removed_again(made):
    """A site that was removed says so when it is started again, and does not wait for others who never answer."""
    again = made.start(3)
    assert "removed from the roster" in again.wait_for(60, event="ended")["reason"]
    assert again.end(60) == 0, again.errors
    files = ("--certificate", str(made.keys / "p3.crt"), "--address", "127.0.0.1:9")
    added = command(made, "roster", "add", "p0.toml", *files)
    assert (added.returncode, "was that of a peer that left" in added.stderr) == (4, True), added.stderr
    file, model = made.folder / "p3.toml", toy.make({"name": "p3"})[0]
    with pytest.raises(PeerLostError, match="p3 was removed from the roster"), securedfl.join(file) as peer:
        peer.average_(model)
    # it cannot know without its log, but is told why nobody answers
    (made.folder / "out-p3").rename(made.folder / "gone")
    unknown = made.start(3)
    reason = unknown.wait_for(60, event="unfit", peer="p0")["reason"]
    assert "a certificate for 'p3', which is not in the roster" in reason
    unknown.kill()


def test_the_roster_changes(federation):
    """A site joins, another renews its key, a third leaves; nothing is promised that the protocol cannot keep."""
    made = federation(4, protocol="shares", group_size=2, rounds=100_000)
    nothing = command(made, "roster", "show", "p0.toml")
    assert (nothing.returncode, "start this site's peer" in nothing.stderr) == (8, True)
    assert not (made.folder / "out-p0").exists()
    processes = made.start_all()
    processes[0].wait_for(event="round", round=1)
    made.names.append("p4")
    files = certificates.issue(made.keys, "p4", ["127.0.0.1"])
    entry = {
        "name": "p4",
        "address": f"127.0.0.1:{free_ports(1)[0]}",
        "fingerprint": certificates.describe(files.certificate).fingerprint,
        "added": True,
    }
    made.write("five.toml", peers=[*made.values["peers"], entry])
    made.write_peer(4, files, federation="five.toml")
    at = ("--address", entry["address"])
    added = command(made, "roster", "add", "p0.toml", "--certificate", str(files.certificate), *at)
    assert added.returncode == 0, added.stderr
    assert "number 4, so entry 5 of [[peers]]" in added.stdout
    assert tomllib.loads(added.stdout[added.stdout.index("[[peers]]\nname") :]) == {"peers": [entry]}
    # as if it had been there from the beginning
    made.write("unmarked.toml", peers=[*made.values["peers"], {**entry, "added": False}])
    made.write_peer(4, files, federation="unmarked.toml")
    unmarked = made.start(4)
    assert (unmarked.end(), "mark its entry with added = true" in unmarked.errors) == (4, True), unmarked.errors
    made.write_peer(4, files, federation="five.toml")
    fifth = made.start(4)
    fifth.wait_for(event="round")
    renewed = certificates.issue(made.keys, "p1", ["127.0.0.1"], renew=True)
    # its log cannot tell it that: by then others refuse the key that it has in use
    processes[1].popen.send_signal(signal.SIGSTOP)
    for k in (0, 2, 3):
        await_text(made.folder / f"out-p{k}" / "peer.log", "the link to p1 is lost")
    changed = command(made, "roster", "renew", "p2.toml", "--certificate", str(renewed.certificate))
    processes[1].popen.send_signal(signal.SIGCONT)
    assert changed.returncode == 0, changed.stderr
    nobody = command(made, "roster", "move", "p0.toml", "p2", "--address", "c2.example.org:0")
    assert "port 0, which others cannot dial" in nobody.stderr
    nowhere = command(made, "roster", "move", "p0.toml", "p2", "--address", "c2.example.org")
    assert (nowhere.returncode, "write HOST:PORT" in nowhere.stderr) == (4, True)
    unknown = command(made, "roster", "remove", "p0.toml", "nobody")
    assert (unknown.returncode, "is not in the roster" in unknown.stderr) == (4, True)
    removed = command(made, "roster", "remove", "p0.toml", "p3")
    assert removed.returncode == 0, removed.stderr
    assert "removed from the roster" in processes[3].wait_for(event="ended")["reason"]
    assert processes[3].end() == 0
    check_removed_again(made)
    # while the peer runs
    shown = json.loads(command(made, "roster", "show", "p0.toml", "--json").stdout)
    assert (shown["rounds"], shown["phase"] in ("training", "sharing", "finishing")) == (100_000, True)
    assert [(one["number"], one["name"], one["added"]) for one in shown["members"]] == [
        *((0, "p0", False), (1, "p1", False), (2, "p2", False), (4, "p4", True)),
    ]
    assert shown["members"][3] == {"number": 4, **entry}
    assert shown["members"][1]["fingerprint"] == certificates.describe(renewed.certificate).fingerprint
    last = made.rows(0)[-1]["round"] + 200
    assert command(made, "extend", "p0.toml", "--rounds", str(last)).returncode == 0
    assert [process.end() for process in (*processes, fifth)] == [0] * 5, [p.errors for p in (*processes, fifth)]
    check_equal(made, [0, 1, 2, 4])
    over = command(made, "roster", "show", "p4.toml").stdout
    assert f"round {last} of {last}: all rounds are done" in over
    assert entry["fingerprint"] in over
    assert made.rows(0)[-1]["members"] == ["p0", "p1", "p2", "p4"]
    ledger = json.loads((made.folder / "out-p0" / "ledger.json").read_text())
    assert (ledger["peers"], ledger["averages"]) == (5, last + 1)
    summary = json.loads((made.folder / "out-p0" / "summary.json").read_text())
    assert summary["roster"] == {str(k): f"p{k}" for k in range(5)}, "p3, too, which was removed"
