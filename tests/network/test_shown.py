"""What a running peer shows, and whom it refuses: metrics and logs, wrong keys, other settings, strangers."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from securedfl.federation.peers.local import COMMAND
from securedfl.network.wire import keys as certificates
from tests.network.peer_processes import await_text, ends, free_ports, last_line
from tests.network.test_faults import shares
from tests.network.test_peers import check_equal


def test_an_expired_certificate_ends_a_peer_and_shuts_it_out(federation):
    """Its own process refuses to start; one that pretends that the clock is right is refused by everybody else."""
    made = federation(3, protocol="grouped", allow_exposure=True, deadlines={})
    old = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)
    expired = certificates.issue(made.keys, "p1", ["127.0.0.1"], days=1, start=old, renew=True)
    made.values["peers"][1]["fingerprint"] = certificates.describe(expired.certificate).fingerprint
    made.write()
    honest = made.start(1)
    assert honest.end() == 4
    assert "expired on" in last_line(honest)
    assert "certs issue p1 --host 127.0.0.1 --renew" in last_line(honest)
    first = made.start(0)
    first.wait_for(event="waiting")
    processes = [first, made.start(1, "ignores expiry"), made.start(2)]
    first.wait_for(event="waiting", missing=["p1"])
    await_text(made.folder / "out-p0" / "peer.log", "certificate has expired")
    for process in processes:
        process.popen.send_signal(signal.SIGTERM)
    assert ends(processes) == [130] * 3, [process.errors for process in processes]


def test_metrics_are_scraped_and_hold_no_parameters(federation):
    """Prometheus' text format, from a real process, while it waits for its peers; and nothing else is served."""
    made = federation(3, protocol="shares", group_size=2)
    port = free_ports(1)[0]
    made.write_peer(0, made.files[0], extra={"metrics": f"127.0.0.1:{port}"})
    first = made.start(0)
    first.wait_for(event="waiting")
    url = f"http://127.0.0.1:{port}"
    before = first_scrape(url + "/metrics")
    assert before["securedfl_peers"] == 3
    assert before["securedfl_peers_present"] == 1
    assert before["securedfl_sent_bytes_total"] == 0
    with pytest.raises(urllib.error.HTTPError, match="404"):
        scrape(url + "/")
    processes = [made.start(1), made.start(2)]
    first.wait_for(event="round", round=3)
    with suppress(OSError):  # it may be gone already
        after = scrape(url + "/metrics")
        assert after["securedfl_sent_bytes_total"] > 0
        names = {re.sub(r"{.*", "", name).removeprefix("securedfl_") for name in after}
        counts = {"round", "rounds", "finished_round", "log_entries", "peers", "peers_present"}
        counts |= {"peer_present", "peer_ready", "peer_linked", "peer_relayed"}
        assert names <= counts | {"sent_bytes_total", "received_bytes_total", "refused_total", "key_expires_seconds"}
        assert after['securedfl_peer_linked{peer="p1"}'] in (0, 1)
        assert all(value == int(value) for value in after.values())  # counts, not parameters
    assert ends([first, *processes]) == [0] * 3, first.errors


def first_scrape(url):
    """A peer says for whom it waits as soon as it knows, which may be before the page is served."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(urllib.error.URLError):
            return scrape(url)
        time.sleep(0.05)
    return scrape(url)


def scrape(url):
    with urllib.request.urlopen(url, timeout=60) as reply:  # noqa: S310 - loopback
        lines = reply.read().decode().splitlines()
    values = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    told = {(words[1], words[2]) for words in (line.split() for line in lines) if words[0] == "#"}
    names = {re.sub(r"{.*", "", name) for name, _ in values}
    assert told >= {(word, name) for word in ("HELP", "TYPE") for name in names}
    return {name: float(value) for name, value in values}


def test_logs_hold_no_parameters(federation):
    """Nothing that looks like one of the final model's numbers stands in any log or event."""
    made = shares(federation, n=3)
    processes = made.start_all()
    assert ends(processes) == [0] * 3
    model = check_equal(made)
    told = "".join((made.folder / f"out-{name}" / "peer.log").read_text() for name in made.names)
    told += json.dumps([process.events for process in processes])
    digits = {f"{abs(value):.6f}"[2:8] for value in model[:200]}
    found = set(re.findall(r"\d+", re.sub(r'"[a-z_]*(seconds|time|bytes_in|bytes_out)": "?[^,}]*', "", told)))
    assert not {d for d in digits if d in found}


def test_wrong_keys_and_other_settings_are_refused_at_the_start(federation):
    """Expired certificate, key of another authority, certificate of another peer, another configuration."""
    made = federation(3, protocol="grouped", allow_exposure=True)
    other = made.folder / "other"
    certificates.create_authority(other)
    stranger = certificates.issue(other, "p1", ["127.0.0.1"])
    made.write_peer(1, stranger)
    foreign = made.start(1)
    assert foreign.end() == 4
    assert "fingerprint" in last_line(foreign)

    made.write_peer(1, made.files[2])
    swapped = made.start(1)
    assert swapped.end() == 4
    assert "is for 'p2'" in last_line(swapped)

    made.write_peer(1, made.files[1])
    made.write("changed.toml", window=5)
    made.write_peer(1, made.files[1], federation="changed.toml")
    # the same settings, but classes of another meaning
    made.write_peer(2, made.files[2], coding="mild, none")
    processes = [made.start(0), made.start(1), made.start(2)]
    for name, other, here in (("p0", 5, 10), ("p1", 10, 5)):
        words = f"has other settings: window is {other} there and {here} here"
        await_text(made.folder / f"out-{name}" / "peer.log", words)
    # they can never begin, so none of them waits
    assert ends(processes) == [4] * 3, [process.errors for process in processes]
    assert "mend that, then start all sites again" in last_line(processes[2])
    assert re.search(r"p2 has other settings: coding is \w+ there and not set here;", last_line(processes[0]))
    made.write_peer(1, made.files[1])
    made.write_peer(2, made.files[2])
    processes = [made.start(0), made.start(1), made.start(2)]
    assert ends(processes) == [0] * 3, [process.errors for process in processes]


def test_garbage_and_strangers_on_the_port(federation):
    """Bytes that are not TLS, and TLS without a certificate, change nothing for the peers."""
    made = federation(3, protocol="grouped", allow_exposure=True)
    first = made.start(0)
    first.wait_for(event="waiting")
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", made.ports[0]), timeout=60) as connection:
            connection.sendall(random.Random(1).randbytes(5000))
    processes = [first, made.start(1), made.start(2)]
    assert ends(processes) == [0] * 3, [process.errors for process in processes]
    check_equal(made)


def test_a_peer_says_where_things_are_and_what_to_do_next(federation):
    """At its start: folder, log, certificates; at its end: the model and its use, or how to go on."""
    made = federation(3, protocol="shares", group_size=2, rounds=1)
    others = [made.start(1), made.start(2)]
    line = [sys.executable, "-c", COMMAND, "peer", "p0.toml"]
    done = subprocess.run(line, cwd=made.folder, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, ends(others)) == (0, [0, 0]), done.stderr
    told, out = done.stdout.splitlines(), Path("out-p0")
    assert told[0] == f"p0: everything goes to the folder {out}; its log is {out / 'peer.log'}"
    assert told[1].startswith(f"Its TLS certificate is {made.files[0].certificate}, ")
    assert str(out / "certificate.json") in told[1]
    model, privacy, use, report = told[-4:]
    assert model.startswith(f"Model: {out / 'model.safetensors'} and {out / 'model.npz'}; ")
    assert str(out / "certificate.json") in privacy
    assert f"securedfl.load({str(out)!r})" in use
    assert f"`securedfl report {out}`" in report


def test_a_peer_that_is_stopped_says_how_it_goes_on(federation):
    made = federation(3, protocol="shares", group_size=2)
    line = [sys.executable, "-c", COMMAND, "peer", "p0.toml"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(line, cwd=made.folder, **pipes) as process:
        try:
            while "waiting for" not in process.stdout.readline():
                assert process.poll() is None, process.stderr.read()
            process.terminate()
            told, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "`securedfl peer p0.toml` goes on where the others are; what is done so far is in out-p0" in told


def test_a_site_with_other_rounds_is_told_before_the_run_begins_and_may_be_corrected(federation):
    """Rounds are no part of the run, so that the log may change them; but logs that begin otherwise never fit."""
    made = federation(3, protocol="shares", group_size=2, rounds=2)
    made.write("changed.toml", train={**made.values["train"], "rounds": 3})
    made.write_peer(2, made.files[2], federation="changed.toml")
    processes = made.start_all()
    assert ends(processes) == [4] * 3, [process.errors for process in processes]
    assert "p2 has other settings: train.rounds is 3 there and 2 here" in last_line(processes[0])
    told = [event for event in processes[0].events if event["event"] == "unfit"]
    assert [(event["peer"], "train.rounds is 3" in event["reason"]) for event in told] == [("p2", True)]
    made.write_peer(2, made.files[2])
    processes = made.start_all()
    assert ends(processes) == [0] * 3, [process.errors for process in processes]
    check_equal(made)
    assert made.rows(2)[-1]["round"] == 2
