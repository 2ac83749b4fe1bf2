"""`securedfl up` when peers end too early, and when it is stopped itself: nobody is passed over or left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from securedfl.cli.up import RoundLines
from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.peers.events import PeerStatus
from securedfl.federation.peers.local import COMMAND, LocalPeer, ProcessLostError, up
from securedfl.federation.peers.local.running import loss
from tests.federation.test_rows import PEER_ROW

APP = """
import os, sys, time
import numpy as np

def make(settings):
    def update(model, data, round):
        time.sleep(PAUSE)
        if settings["number"] == 1 and round == 2:
            END
    return {"w": np.zeros(8, dtype=np.float32)}, [1], update
"""


def write_app(tmp_path, monkeypatch, *, end="pass", pause=0.0):
    monkeypatch.chdir(tmp_path)
    name = f"ends_{tmp_path.name.replace('-', '_')}"
    Path(f"{name}.py").write_text(APP.replace("PAUSE", str(pause)).replace("END", end))
    return f"{name}:make"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, ""),
        (-9, r"was killed by SIGKILL \(kill -9, or the system because memory ran out\)"),
        (-15, "was killed by SIGTERM"),
        (130, r"was stopped by somebody else \(exit code 130\)"),
        (8, r"ended with an error \(exit code 8\)"),
        (0, r"ended before its part was done \(exit code 0\)"),
    ],
)
def test_how_a_process_ended_is_told_in_words(tmp_path, code, words):
    process = SimpleNamespace(poll=lambda: code, returncode=code)
    peer = LocalPeer(tmp_path / "peer-1.toml", process)
    assert peer.end() == words.replace("\\", "")
    assert peer.failed() == (code == 8)
    peer.ended = True
    assert bool(peer.end()) == (code not in (None, 0))


def fake(tmp_path, name, code, *, round):
    """Return a peer that has ended so, if it has, and that has done so many rounds of four."""
    process = SimpleNamespace(poll=lambda: code, returncode=code)
    status, rows = PeerStatus("finishing", 4, 0, 0, 4), dict.fromkeys(range(round + 1), PEER_ROW)
    return LocalPeer(tmp_path / f"{name}.toml", process, status, rows)


@pytest.mark.parametrize(
    ("own", "others", "when", "how"),
    [
        (4, [4, 4], "after the last round", "also once the others have ended"),
        (4, [4, 3], "after the last round", "also once the others have ended"),
        (4, [], "after the last round", "also once the others have ended"),
        (3, [4, 4], "in round 4", "while the others, who have done the last round, stay for it"),
    ],
)
def test_of_a_peer_that_is_killed_at_the_very_end_only_its_own_result_is_missing(tmp_path, own, others, when, how):
    """Nothing goes on without it any more."""
    peer = fake(tmp_path, "peer-2", -9, round=own)
    told = loss(peer, peer.end(), [fake(tmp_path, "peer-1", None, round=done) for done in others])
    assert told.startswith("peer-2 was killed by SIGKILL (kill -9, or the system because memory ran out) " + when)
    assert (
        f"Only its own result may not be whole; `securedfl peer {peer.file}` in another terminal completes it, {how}"
        in told
    )
    assert "go on" not in told
    assert "Nobody" not in told


@pytest.mark.parametrize(
    ("end", "words", "code"),
    [
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL", 7),
        ("os._exit(0)", "ended before its part was done (exit code 0)", 7),
    ],
)
def test_a_peer_that_vanishes_is_told_at_once_and_in_the_end(tmp_path, monkeypatch, end, words, code):
    entry, told = write_app(tmp_path, monkeypatch, end=end), []

    class Heard(Observer):
        def show(self, peers):
            """Draw nothing."""

        def told(self, text):
            told.append(text)

    chosen = {"peers": 4, "rounds": 3, "entry": entry, "methods": ("secured",), "masks": "secret", "protocol": "shares"}
    with pytest.raises(ProcessLostError) as lost:
        up(TrainConfig.resolve(chosen), tmp_path / "run", Heard(), {"absent": 2.0})
    (text,) = told
    assert text.startswith(f"peer-1 {words}")
    log = tmp_path / "run" / "federation" / "peer-1" / "peer.log"
    assert f"in round 2; its log is {log}." in text
    assert "the others go on without it, while at least 3 peers are there" in text
    assert log.exists()
    assert lost.value.exit_code == code
    assert f"peer-1 {words}" in str(lost.value)
    assert lost.value.summary.finished


def test_a_peer_that_ends_with_an_error_stops_all_and_is_told_before(tmp_path, monkeypatch):
    entry = write_app(tmp_path, monkeypatch, end='raise OSError(28, "No space left on device")')
    command = [sys.executable, "-c", COMMAND, "up", "--peers=3", "--rounds=3", f"--entry={entry}", "--out=run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 13
    assert (
        "peer-1 ended with an error (exit code 13) in round 2; its log is run/federation/peer-1/peer.log."
        in done.stdout
    )
    assert "all others are stopped" in done.stdout
    assert "No space left on device" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes as Linux lists them")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_whoever_stops_up_stops_all_peers(tmp_path, monkeypatch, number):
    entry = write_app(tmp_path, monkeypatch, pause=1.0)
    command = [sys.executable, "-c", COMMAND, "up", "--peers=3", "--rounds=300", f"--entry={entry}", "--out=run"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        peers = []
        try:
            while "round 0/" not in process.stdout.readline():
                assert process.poll() is None, process.stderr.read()
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            peers = [int(child) for child in children.split()]
            process.send_signal(number)
            assert process.wait(120) == 130
            assert len(peers) == 3
            left = [peer for peer in peers if Path(f"/proc/{peer}").exists()]
            assert not left
        finally:
            process.kill()
            for peer in peers:
                if Path(f"/proc/{peer}").exists():
                    os.kill(peer, signal.SIGKILL)


def test_rounds_are_counted_as_those_say_that_run(capsys):
    """An operator has changed the last round; one that is lost does not know of it."""

    def peer(rows, rounds, code):
        process = SimpleNamespace(returncode=code, poll=lambda: code)
        found = LocalPeer(Path("peer-0.toml"), process, PeerStatus("", rows, 0, 0, rounds), seen=time.monotonic())
        found.rows = dict.fromkeys(range(rows + 1), PEER_ROW)
        return found

    lines = RoundLines(Console(width=100), 9)
    lines.show([peer(2, 4, None), peer(1, 9, -9), peer(2, 4, None)])
    lines.show([peer(5, 6, None), peer(1, 9, -9), peer(5, 6, None)])
    shown = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == [*(f"round {k}/4" for k in range(3)), *(f"round {k}/6" for k in range(3, 6))]
