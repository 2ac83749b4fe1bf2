"""`securedfl check` of a site at itself: its key, its ports, and its own log, which goes before federation.toml."""

from __future__ import annotations

import datetime as dt
import json
import resource
import socket
from contextlib import closing

import msgspec
import pytest
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.errors import ConfigError, PeerLostError, RunFolderError
from securedfl.federation.checking.check import check, failure
from securedfl.federation.checking.own import OwnSite
from securedfl.federation.checking.room import check_room
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.network.operator import Wish, want
from securedfl.network.wire import keys as certificates
from tests.network.peer_processes import await_text, free_ports, in_threads


def found_at(path, subject, **how):
    """Return what is found about one thing at a site."""
    return {one.subject: one for one in check(path, within=0, **how)}[subject]


@pytest.fixture
def begun(federation):
    """Return a federation of three whose run is over."""
    made = federation(3, protocol="shares", group_size=2, rounds=1)
    assert [process.end() for process in made.start_all()] == [0] * 3
    return made


def test_the_own_log_goes_before_the_file(begun):
    path, roster = begun.folder / "p0.toml", begun.values["peers"]
    assert (
        "3 peers by this site's own log, not by federation.toml, which says the same" in found_at(path, "roster").text
    )
    # as at a site whose file was not kept: other deadlines, another address and key, one more peer
    stranger = {"name": "p3", "address": "127.0.0.1:9", "fingerprint": "1" * 64, "added": True}
    wrong = {**roster[1], "address": "127.0.0.1:8", "fingerprint": "2" * 64}
    moved = {**roster[0], "address": f"127.0.0.1:{free_ports(1)[0]}"}
    stale = {"peers": [moved, wrong, roster[2], stranger], "deadlines": {"train": 9000}}
    begun.write("stale.toml", **stale)
    begun.write_peer(0, begun.files[0], federation="stale.toml")
    told = found_at(path, "roster").text
    assert "which is older: p3 has left" in told
    assert f"p1 is at {roster[1]['address']} now" in told
    assert f"p1 has the key with fingerprint {roster[1]['fingerprint']} now" in told
    assert (
        f"others dial {roster[0]['address']}, and this site listens at {moved['address']}"
        in found_at(path, "own address").text
    )
    found = {}

    def work(k):
        found[k] = check(begun.folder / f"p{k}.toml", wait=60, within=0)

    in_threads(work, 3)
    # nobody is looked for who is only in the file, and what the log decides is not compared
    assert [(one.subject, one.ok) for one in found[0][-2:]] == [("p1", True), ("p2", True)], found[0]
    assert all(one.ok for one in found[1]), found[1]


def test_after_a_finished_run_nobody_need_be_there(begun):
    path, state = begun.folder / "p0.toml", begun.folder / "out-p0" / "state"
    looked = CliRunner().invoke(app, ["check", str(path), "--json", "--open-within=0"])
    assert looked.exit_code == 0, looked.output
    found = {one["subject"]: one["text"] for one in json.loads(looked.stdout)}
    assert found["state folder"].endswith("round 1 of 1; the run is over: all rounds are done")
    assert found["p1"] == "nobody need be there, the run is over: all rounds are done"
    # unless something was asked for, or the last model is not here
    with pytest.raises(PeerLostError):
        want(state, Wish("settings", rounds=5), 1)
    assert not found_at(path, "p1").ok
    (state / "wish").unlink()
    for model in (state / "results").glob("*.bin"):
        model.unlink()
    assert not found_at(path, "p1").ok


def test_a_log_of_another_federation_is_found(begun):
    path = begun.folder / "p0.toml"
    assert "round 1 of 1" in found_at(path, "state folder").text
    begun.values["name"] = "another"
    begun.write("named.toml")
    begun.write_peer(0, begun.files[0], federation="named.toml")
    assert "holds the state of another federation" in found_at(path, "state folder").text
    # of the same name, and with another model: known when the app is made
    begun.write_peer(0, begun.files[0], size=50)
    assert found_at(path, "state folder").ok
    opened = next(one for one in check(path) if one.subject == "app and data")
    assert (opened.ok, "holds the state of another federation, design or model" in opened.text) == (False, True)


def test_a_key_that_is_not_the_one_of_the_roster_is_found_before_others_refuse_it(federation):
    made = federation(3, protocol="shares", group_size=2)
    path = made.folder / "p0.toml"
    fingerprint = made.values["peers"][0]["fingerprint"]
    assert fingerprint in found_at(path, "own keys").text
    renewed = certificates.issue(made.keys, "p0", ["127.0.0.1"], renew=True)
    keys = found_at(path, "own keys")
    assert not keys.ok
    assert f"has the fingerprint {certificates.describe(renewed.certificate).fingerprint}" in keys.text
    assert f"federation.toml says {fingerprint}: before the first start, correct that at all sites" in keys.text
    # on a new disk, in the middle of a run
    assert "the key was renewed in it and this disk is new, leave federation.toml as it is" in keys.text
    assert f"set renewed = true in {path}" in keys.text
    made.write_peer(0, made.files[0], extra={"renewed": True})
    keys = found_at(path, "own keys")
    assert keys.ok
    assert "renewed since federation.toml was written" in keys.text
    renewed.key.chmod(0o644)
    assert "run: chmod 600" in found_at(path, "own keys").text


def test_a_renewed_key_that_the_log_does_not_know_is_found_with_the_command(begun):
    path = begun.folder / "p0.toml"
    renewed = certificates.issue(begun.keys, "p0", ["127.0.0.1"], renew=True)
    keys = found_at(path, "own keys")
    assert not keys.ok
    assert f"securedfl roster renew {path} --certificate {renewed.certificate}" in keys.text


@pytest.mark.parametrize(("days", "ok"), [(10, True), (0.5, False)])
def test_the_command_that_renews_a_key_is_told(federation, days, ok):
    made = federation(3, protocol="shares", group_size=2)
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    old = certificates.issue(made.keys, "p0", ["a.example.org"], renew=True, days=days, start=start)
    entry = {**made.values["peers"][0], "fingerprint": certificates.describe(old.certificate).fingerprint}
    made.write(peers=[entry, *made.values["peers"][1:]])
    path = made.folder / "p0.toml"
    keys = found_at(path, "own keys")
    assert keys.ok == ok
    assert "securedfl certs issue p0 --host a.example.org --renew; then" in keys.text
    assert f"securedfl roster renew {path} --certificate {old.certificate}" in keys.text
    # an authority is not renewed by a command
    assert "certs issue" not in certificates.create_authority(made.folder / "brief", days=1).expiry()


def test_the_settings_that_differ_from_those_of_the_run_are_named(begun):
    begun.write("changed.toml", train={**begun.values["train"], "seed": 5, "rounds": 9})
    path = begun.write_peer(0, begun.files[0], federation="changed.toml")
    looked = CliRunner().invoke(app, ["check", str(path)])
    peer = begun.start(0)
    assert (looked.exit_code, peer.end()) == (8, 8), looked.output
    for told in (looked.stderr, peer.errors):
        assert "; use the federation.toml that it began with, or, for another run, choose another out" in told
        assert "; of [train] differs: seed was 0 and is 5 now" in told
        assert "rounds was" not in told


def test_a_full_disk_is_found_before_the_peer_is_started(federation):
    made = federation(3, protocol="shares", group_size=2)
    path, before = made.folder / "p0.toml", resource.getrlimit(resource.RLIMIT_FSIZE)
    assert found_at(path, "state folder").text == "empty: the first start"
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        full = check(path, within=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert failure(full).exit_code == 8
    assert "free some space, then start this peer again" in str(failure(full))
    # nothing is left of the try
    assert not (made.folder / "out-p0").exists()
    assert not [one for one in made.folder.iterdir() if one.name.startswith("tmp")]
    check_room(made.folder / "out-p0" / "state", 1000)
    with pytest.raises(RunFolderError, match="takes 4,000,000,000,000 MB at least: free some space"):
        check_room(made.folder / "out-p0" / "state", 10**18)


def test_ports_that_are_taken_are_found(federation):
    made = federation(3, protocol="shares", group_size=2)
    listen, path = made.values["peers"][0]["address"], made.folder / "p0.toml"
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    made.write_peer(0, made.files[0], extra={"metrics": metrics})
    assert found_at(path, "metrics").text == f"{metrics} is free"
    for taken, subject in ((metrics, "metrics"), (listen, "listening")):
        host, port = taken.split(":")
        with closing(socket.create_server((host, int(port)))):
            found = found_at(path, subject)
            assert not found.ok
            assert taken in found.text
    made.write_peer(0, made.files[0], extra={"metrics": listen})
    assert not found_at(path, "metrics").ok


def test_check_asks_a_running_peer_and_judges_by_its_log(federation):
    made = federation(3, protocol="shares", group_size=2, rounds=100_000)
    processes = made.start_all()
    processes[0].wait_for(event="round", round=1)
    moved = [{**made.values["peers"][0], "address": "127.0.0.1:9"}, *made.values["peers"][1:]]
    made.write("stale.toml", peers=moved)
    made.write_peer(0, made.files[0], federation="stale.toml", extra={"metrics": made.values["peers"][0]["address"]})
    looked = CliRunner().invoke(app, ["check", str(made.folder / "p0.toml"), "--json"])
    found = {one["subject"]: one for one in json.loads(looked.stdout)}
    assert looked.exit_code == 0, looked.output
    assert f"p0 is at {made.values['peers'][0]['address']} now" in found["roster"]["text"]
    assert "links to p1 directly" in found["running peer"]["text"]
    assert not {"listening", "metrics"} & found.keys()


def test_where_too_many_disks_are_lost_each_site_is_told_who_waits_and_how_many_can_decide(federation):
    made = federation(3, protocol="shares", group_size=2, rounds=100_000)
    processes = made.start_all()
    processes[0].wait_for(event="round", round=1)
    for process in processes[1:]:
        process.kill()
    for name in ("p1", "p2"):
        (made.folder / f"out-{name}").rename(made.folder / f"gone-{name}")
    made.start(1)
    made.start(2)
    for name in ("p1", "p2"):
        await_text(made.folder / "out-p0" / "peer.log", f"{name} came with another state folder")
    # it has the log of the other then
    await_text(made.folder / "out-p1" / "peer.log", "took the result from p0")
    # what the other said from its old disk is heard of for a moment
    await_text(made.folder / "out-p1" / "peer.log", "p2 is lost")
    looked = [CliRunner().invoke(app, ["check", str(made.folder / f"{name}.toml")]) for name in ("p0", "p1")]
    assert [one.exit_code for one in looked] == [7, 7], [one.stderr for one in looked]
    first, second = (one.stderr for one in looked)
    assert "no link to p1: it came with a new state folder, and waits to be admitted" in first
    assert "at least 2 of 3 peers must be there to admit anybody, and only 1 is" in first
    assert "this site came with a new state folder, and waits to be admitted" in second
    assert "at least 2 of 3 peers must be there to admit anybody, and only 1 is" in second


@pytest.mark.parametrize(("gone", "told"), [(True, "was removed from the roster"), (False, "does not name it yet")])
def test_a_site_that_its_log_does_not_name_is_told_why(federation, gone, told):
    made = federation(3, protocol="shares", group_size=2)
    config = PeerConfig.load(made.folder / "p0.toml")
    shared = FederationConfig.load(config.federation)
    before = shared.genesis()
    retired = before.roster[:1] if gone else ()
    log = msgspec.structs.replace(before, roster=before.roster[1:], retired=retired, length=9)
    site = OwnSite(made.folder / "p0.toml", config, shared, log)
    with pytest.raises(ConfigError, match=told):
        site.members()
    # its key is fine, and there is no address that others dial
    assert "fingerprint" in site.key()
    assert site.moved() == ""


def test_a_damaged_log_is_told_beside_all_else(begun):
    path = begun.folder / "p0.toml"
    state = begun.folder / "out-p0" / "state"
    (state / "genesis").write_bytes(b"garbage")
    found = {one.subject: one for one in check(path, within=0)}
    assert (found["state folder"].ok, "genesis is unreadable" in found["state folder"].text) == (False, True)
    assert found["own keys"].ok
    assert "p1" not in found
    # what was decided is not known, so nothing is said of the roster, nor that another key is wrong
    assert "roster" not in found
    certificates.issue(begun.keys, "p0", ["127.0.0.1"], renew=True)
    assert "what the log says of it cannot be read" in found_at(path, "own keys").text
    # with the exit code of the peer, also where the app is opened
    records = bytearray((state / "journal").read_bytes())
    records[40] ^= 255
    (state / "journal").write_bytes(records)
    looked = CliRunner().invoke(app, ["check", str(path)])
    assert looked.exit_code == 8, looked.output
    assert "state folder: " in looked.stderr
    assert "is damaged" in looked.stderr
