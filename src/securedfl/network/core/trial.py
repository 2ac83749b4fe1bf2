"""A trial: this peer's part in one attempt at an average, and in finishing it without members that were lost since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from securedfl.errors import PeerLostError
from securedfl.network.core.board import Board
from securedfl.network.core.rules import Rules
from securedfl.network.driver import Attempt, check_finite
from securedfl.network.routes import Routes
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.frames import Place
from securedfl.network.wire.mailbox import Mailbox
from securedfl.network.wire.outlet import StreamOutlet
from securedfl.protocols.steps import Array, Draw


@dataclass(frozen=True)
class _Running:
    """The streams that are open: for an attempt, with the peers that take part in it."""

    attempt: int
    peers: tuple[int, ...]
    mailbox: Mailbox
    outlets: dict[int, StreamOutlet]


class Trial:
    """One attempt with its members, seen from this peer.

    Parameters
    ----------
    endpoint, board, rules
        Of the session.
    place
        Run, round and attempt.
    epoch
        How often the round's average was abandoned before.
    members
        Who takes part; they are numbered in this order.
    vector
        This peer's parameters.
    draws
        Gives the draw for the chunk that starts at an offset; None for cryptographic masks.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        board: Board,
        rules: Rules,
        *,
        place: Place,
        epoch: int,
        members: tuple[int, ...],
        vector: Array,
        draws: Callable[[int], Draw] | None = None,
    ) -> None:
        self._endpoint, self._board = endpoint, board
        self.place, self.epoch, self.members = place, epoch, members
        self._plan = rules.plan(members.index(endpoint.me), len(members), place.round)
        self._job = Attempt(self._plan, vector, draws=draws, patience=rules.deadlines.average)
        self._running: _Running | None = None
        self.shared = False

    @property
    def value(self) -> dict[str, object]:
        """What the roster decides on if it commits to this attempt."""
        return {"kind": "members", "attempt": self.place.attempt, "members": list(self.members)}

    def run(self, await_commit: Callable[[Trial, Mailbox], None]) -> Array:
        """Share, wait for the commit, and finish; return the average or raise `PeerLostError`."""
        self._board.say(to=(), phase="sharing", attempt=self.place.attempt)
        with self._streams(self.place.attempt, self._plan.routes, self.members) as running:
            self._job.connect(running.mailbox, running.outlets)
            self._job.share()
            self.shared = True
            self._board.say(to=self._board.first(self.members), phase="shared")
            await_commit(self, running.mailbox)
            self._board.say(to=(), phase="finishing")
            return self._checked(self._job.finish())

    def recoverable(self, left: tuple[int, ...]) -> bool:
        """Tell whether these members can finish the average of all members."""
        return self.shared and self._job.recoverable(self._lost(left))

    def finish_with(self, left: tuple[int, ...], attempt: int) -> Array:
        """Finish what was committed with those left, under another number; the average is still that of all members."""
        lost = self._lost(left)
        self._board.say(phase="finishing", attempt=attempt)
        with self._streams(attempt, self._plan.routes_without(lost), left) as running:
            self._job.connect(running.mailbox, running.outlets)
            return self._checked(self._job.finish(lost))

    def watch(self) -> None:
        """End what is running as soon as somebody who takes part is gone or has gone on."""
        running = self._running
        if running is None:
            return
        for peer in running.peers:
            status, name = self._board.status(peer), self._endpoint.roster[peer].name
            here = (status.round, status.epoch) == (self.place.round, self.epoch)
            if not self._board.present(peer):
                running.mailbox.fail(PeerLostError(f"{name} was lost"))
            elif here and status.attempt > running.attempt:
                running.mailbox.fail(PeerLostError(f"{name} went on to another attempt"))
            elif here and status.attempt == running.attempt and status.phase in ("ready", "recovering"):
                running.mailbox.fail(PeerLostError(f"{name} gave this attempt up"))

    @contextmanager
    def _streams(self, attempt: int, routes: tuple[Routes, ...], peers: tuple[int, ...]) -> Iterator[_Running]:
        """Open a mailbox and a stream to everybody else who takes part."""
        place = replace(self.place, attempt=attempt)
        mailbox = Mailbox(place, routes)
        running = self._running = _Running(attempt, peers, mailbox, {})
        self._endpoint.attach(mailbox, self.members)
        try:
            for number, peer in enumerate(self.members):
                if peer in peers and peer != self._endpoint.me:
                    running.outlets[number] = self._endpoint.outlet(peer, place, mailbox)
            yield running
        finally:
            self._running = None
            self._endpoint.detach(mailbox)
            for outlet in running.outlets.values():
                outlet.cancel()

    def _lost(self, left: tuple[int, ...]) -> frozenset[int]:
        return frozenset(number for number, peer in enumerate(self.members) if peer not in left)

    @staticmethod
    def _checked(result: Array) -> Array:
        check_finite(result)
        return result
