"""The board: what every peer last said about itself, kept fresh by heartbeats."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from securedfl.errors import PeerLostError, SecuredFLError
from securedfl.network.wire.control import number, text
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.frames import FrameError

PHASES = (
    "starting",
    "training",
    "ready",
    "sharing",
    "shared",
    "finishing",
    "recovering",
    "have",
    "done",
    "left",
)


@dataclass(frozen=True)
class Status:
    """What a peer tells the others: where it is, never what it knows.

    Attributes
    ----------
    phase
        One of `PHASES`.
    round, epoch, attempt
        The average that the phase is about.
    finished
        The last round whose average this peer holds, -1 for none.
    digest
        Of the result that it holds, while it waits for the others' confirmation.
    identity
        Hashes of configuration, design and model, to be compared.
    reason
        Why it left.
    clock
        Its time of day in milliseconds.
    """

    phase: str = "starting"
    round: int = -1
    epoch: int = 0
    attempt: int = -1
    finished: int = -1
    digest: str = ""
    identity: str = ""
    reason: str = ""
    clock: int = 0


@dataclass(frozen=True)
class Entry:
    """What is known about one peer."""

    status: Status = Status()
    seen: float = 0.0
    answers: bool = False
    problem: str = "has not answered yet"


class Board:
    """Collects statuses, pushes this peer's own, and tells who is there.

    Parameters
    ----------
    endpoint
        The network.
    heartbeat
        Seconds between two heartbeats.
    silence
        Seconds without a sign of life after which a peer counts as gone.
    watch
        Called after every heartbeat.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        heartbeat: float = 1.0,
        silence: float = 10.0,
        watch: Callable[[], None] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._watch = watch or (lambda: None)
        self._heartbeat, self._silence = heartbeat, silence
        self.changed = threading.Condition()
        self.mine = Status()
        self._entries = {peer: Entry() for peer in range(len(endpoint.roster)) if peer != endpoint.me}
        self._wake = {peer: threading.Event() for peer in self._entries}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._beat, args=(peer,), name=f"securedfl-beat-{peer}", daemon=True)
            for peer in self._entries
        ]

    def start(self) -> None:
        """Begin with heartbeats."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the heartbeats."""
        self._stop.set()
        for event in self._wake.values():
            event.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=5)

    def say(self, *, to: Iterable[int] | None = None, **changes: Any) -> None:
        """Change this peer's own status and tell everybody at once.

        Parameters
        ----------
        to
            Tell these at once; the others hear of it with the next heartbeat. For what only one peer waits for.
        changes
            Of `Status`.
        """
        with self.changed:
            self.mine = replace(self.mine, **changes)
            self.changed.notify_all()
        for peer in self._entries if to is None else set(to) & set(self._entries):
            self._wake[peer].set()

    def poke(self) -> None:
        """Let whoever waits look again."""
        with self.changed:
            self.changed.notify_all()

    def status(self, peer: int) -> Status:
        """Return what a peer last said."""
        return self.mine if peer == self._endpoint.me else self._entries[peer].status

    def entry(self, peer: int) -> Entry:
        """Return all that is known about another peer."""
        return self._entries[peer]

    def present(self, peer: int) -> bool:
        """Tell whether a peer answers and has not left."""
        if peer == self._endpoint.me:
            return True
        entry = self._entries[peer]
        return entry.answers and entry.status.phase != "left" and time.monotonic() - entry.seen < self._silence

    def first(self, peers: Iterable[int]) -> list[int]:
        """Return the first of these peers that is there, for `say`: it acts for all, unless it is lost."""
        return [peer for peer in peers if self.present(peer)][:1]

    def heard(self, peer: int, since: float) -> bool:
        """Tell whether what is known about a peer is from after a moment."""
        return peer == self._endpoint.me or self._entries[peer].seen >= since

    def hear(self, peer: int, message: dict[str, Any]) -> dict[str, Any]:
        """Take a heartbeat from a peer and answer with this peer's own status."""
        self._note(peer, read_status(message))
        self._watch()
        return self.told()

    def told(self) -> dict[str, Any]:
        """Return this peer's own status as it travels."""
        return status_message(self.mine)

    def wait(self, check: Callable[[], Any], timeout: float) -> Any:
        """Wait until ``check`` returns something true, or the time is up; return what it returned last."""
        deadline = time.monotonic() + timeout
        while True:
            result = check()
            left = deadline - time.monotonic()
            if result or left <= 0:
                return result
            with self.changed:
                self.changed.wait(min(left, 0.1))

    def _note(self, peer: int, status: Status) -> None:
        with self.changed:
            old = self._entries[peer]
            self._entries[peer] = Entry(status, time.monotonic(), True, "")
            if old.status != status or not old.answers:
                self.changed.notify_all()

    def _beat(self, peer: int) -> None:
        """Exchange statuses with one peer until the end."""
        while not self._stop.is_set():
            self._wake[peer].clear()
            try:
                # a peer that is busy answers late; one that is gone refuses the connection at once
                reply = self._endpoint.call(peer, self.told(), timeout=max(5.0, self._silence / 2))
                self._note(peer, read_status(reply))
            except FrameError as error:
                self._trouble(peer, str(error), gone=True)
            except SecuredFLError as error:
                gone = isinstance(error, PeerLostError) and "deadline" not in str(error)
                self._trouble(peer, str(error), gone=gone or not isinstance(error, PeerLostError))
            self._watch()
            while not self._wake[peer].wait(self._heartbeat):
                if time.monotonic() - self._entries[peer].seen > self._heartbeat / 2:
                    break  # else the peer has just called, and was answered: that told both as much

    def _trouble(self, peer: int, problem: str, *, gone: bool) -> None:
        with self.changed:
            old = self._entries[peer]
            fresh = time.monotonic() - old.seen < self._heartbeat
            # the other direction may work: only believe a failure if the peer has been silent as well
            self._entries[peer] = replace(old, answers=old.answers and (fresh or not gone), problem=problem)
            self.changed.notify_all()


def status_message(status: Status) -> dict[str, Any]:
    """Return a heartbeat, with the time of day."""
    return {"kind": "beat", **asdict(replace(status, clock=_clock()))}


def read_status(message: dict[str, Any]) -> Status:
    """Read a heartbeat; a malformed one is a `FrameError`."""
    phase = text(message, "phase")
    if phase not in PHASES:
        raise FrameError("a heartbeat with an unknown phase")
    return Status(
        phase=phase,
        round=number(message, "round"),
        epoch=number(message, "epoch"),
        attempt=number(message, "attempt"),
        finished=number(message, "finished"),
        digest=text(message, "digest"),
        identity=text(message, "identity"),
        reason=text(message, "reason"),
        clock=number(message, "clock"),
    )


def _clock() -> int:
    return int(time.time() * 1000)
