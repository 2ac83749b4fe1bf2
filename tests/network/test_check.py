"""`securedfl check`: what it says of sites that are missing, and of sites that do not fit."""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time

import pytest
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.errors import ConfigError, PeerLostError
from securedfl.federation.checking.check import check, failure
from securedfl.network.core.entries import Line, Settings
from securedfl.network.core.state import State
from securedfl.network.operator import Desk, Wish, want
from securedfl.network.wire import keys as certificates
from securedfl.network.wire.contact.relay import RelayServer
from securedfl.network.wire.values import Reach
from tests.network.peer_processes import free_ports, in_threads


def test_check_tells_sites_that_are_not_there_from_sites_that_do_not_fit(federation):
    made = federation(3, protocol="shares", group_size=2)

    alone = CliRunner().invoke(app, ["check", str(made.folder / "p0.toml"), "--open-within=0"])
    assert alone.exit_code == 7, alone.output
    assert "2 of 9 checks failed: p1: does not answer" in alone.stderr
    roster = [dict(entry) for entry in made.values["peers"]]
    roster[1]["fingerprint"] = "0" * 64
    made.write("wrong.toml", peers=roster)
    made.write_peer(0, made.files[0], federation="wrong.toml")
    found = {}

    def work(k):
        found[k] = check(made.folder / f"p{k}.toml", wait=20, within=0)

    in_threads(work, 2)
    # p0 refuses p1, which is told so, and p2 is not there
    assert "shows a certificate with fingerprint" in str(failure(found[0]))
    assert [[finding.lost for finding in found[k][-2:]] for k in (0, 1)] == [[False, True]] * 2, found
    assert [failure(found[k]).exit_code for k in (0, 1)] == [4, 4]


def test_check_compares_clocks_when_a_peer_is_heard_and_not_when_the_waiting_ends(federation, monkeypatch):
    made, found = federation(3, protocol="shares", group_size=2), {}
    monkeypatch.setattr("securedfl.federation.checking.others.CLOCK_SLACK", 3.0)

    def work(k):
        found[k] = check(made.folder / f"p{k}.toml", wait=6, within=0)

    # p2 is missing, so that p0 and p1 wait to the end
    in_threads(work, 2)
    assert [failure(found[k]).exit_code for k in (0, 1)] == [7, 7], found
    assert not any("clock" in finding.text for k in (0, 1) for finding in found[k])


@pytest.mark.parametrize("fits", [True, False])
def test_a_running_peer_tells_them_apart_too(tmp_path, fits):
    (tmp_path / "journal").write_bytes(b"")
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    desk, done = Desk(tmp_path), threading.Event()
    state = State("run", (Line(0, "a", "", b"k"), Line(1, "b", "", b"l")), Settings(3))

    def answer():
        while not done.is_set():
            desk.new_command(state, {}, lambda: {"b": Reach(False, None, "gone", unfit=not fits)})
            time.sleep(0.1)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with pytest.raises(PeerLostError if fits else ConfigError, match="no link to b"):
            want(tmp_path, Wish("look"), 60)
    finally:
        done.set()
        thread.join()
        os.close(lock)
    # when the desk is done with it, too
    assert {path.name for path in tmp_path.iterdir()} == {"journal", "lock"}


def test_check_tells_who_is_there_and_who_differs(federation):
    made = federation(3, protocol="shares", group_size=2)
    alone = check(made.folder / "p0.toml")
    assert {f.subject: f.ok for f in alone} == {
        "federation.toml": True,
        "design": True,
        "privacy": True,
        "own keys": True,
        "state folder": True,
        "roster": True,
        "listening": True,
        "app and data": True,
        "p1": False,
        "p2": False,
    }
    assert re.fullmatch(
        r"does not answer: 127\.0\.0\.1:\d+: connection refused; the machine is there, but nothing listens: start the "
        r"peer or relay there, or check the address",
        alone[-1].text,
    )
    findings = {}

    def work(k):
        findings[k] = check(made.folder / f"p{k}.toml", wait=60)

    in_threads(work, 3)
    assert all(finding.ok for found in findings.values() for finding in found), findings
    assert any("it reaches p0 directly" in finding.text for finding in findings[1]), findings
    made.write("changed.toml", window=5)
    made.write_peer(2, made.files[2], federation="changed.toml")

    def differing(k):
        findings[k] = check(made.folder / f"p{k}.toml", wait=60)

    in_threads(differing, 3)
    assert "window is 5 there and 10 here" in findings[0][-1].text

    # all that is wrong at this site is told at once
    made.write("changed.toml", window=0)
    made.files[1].key.unlink()
    made.write_peer(1, made.files[1], federation="changed.toml")
    assert [(found.subject, found.ok) for found in check(made.folder / "p1.toml")] == [
        ("federation.toml", False),
        ("own keys", False),
        ("state folder", True),
    ]


@pytest.fixture
def relays(federation):
    """Return a federation with relay-a, which runs, and relay-b, which does not; and their entries."""
    made = federation(3, protocol="shares", group_size=2)
    files = {name: certificates.issue(made.keys, name, ["127.0.0.1"]) for name in ("relay-a", "relay-b")}
    server = RelayServer(files["relay-a"], "127.0.0.1:0")
    places = {"relay-a": server.address, "relay-b": f"127.0.0.1:{free_ports(1)[0]}"}
    entries = [
        {
            "name": name,
            "address": places[name],
            "fingerprint": certificates.describe(files[name].certificate).fingerprint,
        }
        for name in places
    ]
    made.write(relays=entries)
    yield made, entries
    server.close()


def test_check_warns_of_a_relay_that_nobody_needs(relays):
    made, found = relays[0], {}

    def work(k):
        if k:
            found[k] = check(made.folder / f"p{k}.toml", wait=30, within=0)
        else:
            arguments = ["check", str(made.folder / "p0.toml"), "--wait=30", "--open-within=0"]
            found[k] = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})

    in_threads(work, 3)
    assert [(one.subject, one.ok, one.lost) for one in found[1][-2:]] == [
        ("relay relay-a", True, False),
        ("relay relay-b", True, True),
    ]
    assert failure(found[1]) is None
    assert found[0].exit_code == 0, found[0].output
    assert re.search("warning.*relay relay-b.*is not reached: 127.*connection refused", found[0].output)


def test_check_tells_a_relay_that_is_missing_with_the_sites_from_one_that_does_not_fit(relays):
    made, (first, second) = relays
    alone = check(made.folder / "p0.toml", within=0)
    assert [(one.subject, one.ok, one.lost) for one in alone[-2:]] == [
        ("relay relay-a", True, False),
        ("relay relay-b", False, True),
    ]
    assert failure(alone).exit_code == 7
    # the one that runs has the key of another, or another key than the one that is named
    made.write(relays=[{**first, "fingerprint": "0" * 64}, {**second, "address": first["address"]}])
    false = check(made.folder / "p0.toml", within=0)
    assert [(one.ok, one.lost) for one in false[-2:]] == [(False, False)] * 2
    assert "shows a certificate with fingerprint" in false[-2].text
    assert "mismatch" in false[-1].text
    assert failure(false).exit_code == 4


def test_check_tells_which_pairs_go_through_which_relay(relays):
    made, entries = relays
    # nobody can be dialled, so that only the relay that runs joins them
    silent = [{key: value for key, value in entry.items() if key != "address"} for entry in made.values["peers"]]
    made.write(peers=silent, relays=entries)
    found = {}

    def work(k):
        found[k] = check(made.folder / f"p{k}.toml", wait=60, within=0)

    in_threads(work, 3)
    assert all(one.ok for one in found[0]), found[0]
    pairs = next(one.text for one in found[0] if one.subject == "through relay-a")
    assert {"p0 and p1", "p0 and p2"} <= set(pairs.split(", ")) <= {"p0 and p1", "p0 and p2", "p1 and p2"}
    assert "reached through relay-a" in next(one.text for one in found[0] if one.subject == "p1")
    assert "only dials out" in next(one.text for one in found[0] if one.subject == "listening")
