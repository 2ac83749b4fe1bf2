"""One peer process on this machine: started, heard, and stopped; and how it ended, in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from securedfl.errors import INTERRUPTED
from securedfl.federation.peers.events import Ended, PeerStatus, Phase, Resumed, from_json
from securedfl.federation.run_folder.files import SUMMARY
from securedfl.federation.run_folder.metrics import PeerRow
from securedfl.federation.run_folder.summary import read_summary

COMMAND = "from securedfl.cli import main; main()"
STOP_SECONDS = 10.0
LAST_WORDS_SECONDS = 5.0
"""How long the last words of a process are waited for once it has ended: others may hold its pipes open."""
ERROR = "error: "
"""How the command line begins what it tells of an error."""


@dataclass
class LocalPeer:
    """One peer process, and what it last said.

    Attributes
    ----------
    file
        Its ``peer.toml``; its folder is beside it.
    ended
        Whether it said that the run was ended, for all.
    """

    file: Path
    process: subprocess.Popen[str]
    status: PeerStatus = field(default_factory=PeerStatus)
    rows: dict[int, PeerRow] = field(default_factory=dict)
    seen: float = field(default_factory=time.monotonic)
    error: str = ""
    ended: bool = False
    readers: tuple[threading.Thread, ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return self.file.stem

    @property
    def folder(self) -> Path:
        """What it leaves is here."""
        return self.file.with_suffix("")

    @property
    def log(self) -> Path:
        """The log that it writes."""
        return self.folder / "peer.log"

    def running(self) -> bool:
        """Tell whether it still runs; if not, all of its last words have been read."""
        if self.process.poll() is None:
            return True
        for reader in self.readers:
            reader.join(LAST_WORDS_SECONDS)
        return False

    def failed(self) -> bool:
        """Tell whether it ended by an error of its own, which nobody here mends."""
        return not self.running() and self.process.returncode > 0 and self.process.returncode != INTERRUPTED

    def last_round_done(self) -> bool:
        """Tell whether it has said that the last round is done, so that it was leaving its results."""
        return 0 < self.status.rounds <= max(self.rows, default=-1)

    def end(self) -> str:
        """Return how it ended before its part was done, in words; nothing if it runs, or is done."""
        if self.running():
            return ""
        code = self.process.returncode
        if code < 0:
            return f"was killed by {_signal(-code)}"
        if code == INTERRUPTED:
            return f"was stopped by somebody else (exit code {code})"
        if code:
            return f"ended with an error (exit code {code})"
        return "" if self.ended or self._finished() else "ended before its part was done (exit code 0)"

    def _finished(self) -> bool:
        """Tell whether it has left the account of a run that is finished."""
        return (self.folder / SUMMARY).exists() and read_summary(self.folder).finished


def _signal(number: int) -> str:
    """Return a signal by its name, and who mostly sends it."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    who = {"SIGKILL": " (kill -9, or the system because memory ran out)", "SIGSEGV": " (a crash in a library)"}
    return name + who.get(name, "")


def start(path: Path) -> LocalPeer:
    """Start a peer in a session of its own, so that Ctrl-C reaches this process only, which then stops all."""
    # it works in a folder of its own, and finds the modules of apps where this process does
    modules = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and command
        [sys.executable, "-c", COMMAND, "peer", path.name, "--json"],
        cwd=path.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(modules)},
    )
    peer = LocalPeer(path, process)
    peer.readers = tuple(
        threading.Thread(target=read, args=(peer,), daemon=True) for read in (_read_events, _read_errors)
    )
    for reader in peer.readers:
        reader.start()
    return peer


def _read_events(peer: LocalPeer) -> None:
    for line in peer.process.stdout or ():
        event = from_json(line)
        peer.seen = time.monotonic()
        if isinstance(event, PeerStatus):
            peer.status = event
        elif isinstance(event, Phase):
            peer.status = structs.replace(peer.status, phase=event.phase, round=event.round)
        elif isinstance(event, Resumed):
            peer.status = structs.replace(peer.status, round=event.round)
        elif isinstance(event, Ended):
            peer.ended = True
        elif isinstance(event, PeerRow):
            peer.rows[event.round] = event
            moved = {"bytes_in": event.bytes_in, "bytes_out": event.bytes_out}
            peer.status = structs.replace(peer.status, round=event.round, **moved)


def _read_errors(peer: LocalPeer) -> None:
    """Keep our error with all its lines, or else the last line that there is."""
    for line in peer.process.stderr or ():
        if peer.error.startswith(ERROR) and not line.startswith(ERROR):
            peer.error += f"\n{line.rstrip()}" if line.strip() else ""
        else:
            peer.error = line.strip() or peer.error


def stop(peers: Sequence[LocalPeer]) -> None:
    """Ask every process to leave, and end those that do not; each by its own handle."""
    try:
        for peer in peers:
            if peer.process.poll() is None:
                peer.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for peer in peers:
            try:
                peer.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                peer.process.kill()
                peer.process.wait()
    except BaseException:  # a second Ctrl-C: no more time for anybody
        for peer in peers:
            if peer.process.poll() is None:
                peer.process.kill()
        raise
    for peer in peers:
        for reader in peer.readers:
            reader.join(LAST_WORDS_SECONDS)
        for pipe in (peer.process.stdout, peer.process.stderr):
            if pipe is not None:
                pipe.close()
