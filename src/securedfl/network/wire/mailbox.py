"""The mailbox of one attempt: takes frames in any order, drops what it does not expect, hands out whole steps."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from securedfl.errors import PeerLostError, SecuredFLError
from securedfl.network.routes import Routes
from securedfl.network.wire.frames import Frame, Place, Spec, message_of
from securedfl.protocols.steps import Inbox

Unpack = Callable[[Frame], Any]


class Mailbox:
    """Collects the messages of one attempt, from server threads, for one reader.

    Memory is bounded by the protocol itself: a message that the routes do not announce, that has another length or
    dtype, or that came before, is dropped and counted.

    Parameters
    ----------
    place
        Run, round and attempt that frames must name; step and chunk are not looked at.
    routes
        What this peer receives, per chunk.
    unpack
        Turns a checked frame into a message of the protocol.
    """

    def __init__(self, place: Place, routes: Sequence[Routes], unpack: Unpack = message_of) -> None:
        self.place = place
        self.dropped: Counter[str] = Counter()
        self._routes = routes
        self._unpack = unpack
        self._inboxes: dict[tuple[int, int], Inbox] = {}
        self._taken: set[tuple[int, int]] = set()
        self._changed = threading.Condition()
        self._failure: SecuredFLError | None = None
        self.last_arrival = time.monotonic()

    def deliver(self, sender: int, frame: Frame) -> bool:
        """Take a frame; return whether it was expected and new."""
        place = frame.place
        key = (place.chunk, place.step)
        with self._changed:
            why = self._objection(sender, frame.spec, place)
            if why:
                self.dropped[why] += 1
                return False
            self._inboxes.setdefault(key, Inbox())[sender] = self._unpack(frame)
            self.last_arrival = time.monotonic()
            if len(self._inboxes[key]) == len(self._expected(*key)):
                self._changed.notify_all()
        return True

    def fail(self, error: SecuredFLError) -> None:
        """End the attempt: the reader gets this error instead of messages."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    @property
    def failure(self) -> SecuredFLError | None:
        """Why the attempt ended, if it did."""
        return self._failure

    def check(self) -> None:
        """Raise the error that ended the attempt, if one did."""
        if self._failure:
            raise self._failure

    def take(self, waiting: Mapping[int, int], patience: float) -> tuple[int, Inbox]:
        """Wait until all messages of a step are there for one of the chunks; return that chunk and its inbox.

        Parameters
        ----------
        waiting
            The step that each chunk waits for.
        patience
            Seconds without any new message after which `PeerLostError` names the peers that are missing.
        """
        self.last_arrival = time.monotonic()
        with self._changed:
            while True:
                found = self._complete(waiting)
                if found is not None:
                    return found
                left = self.last_arrival + patience - time.monotonic()
                if left <= 0:
                    raise PeerLostError(f"nothing arrived for {patience:g} s from {self._missing(waiting)}")
                self._changed.wait(left)

    def poll(self, waiting: Mapping[int, int]) -> tuple[int, Inbox] | None:
        """Do the same without waiting; None if no chunk has all its messages."""
        with self._changed:
            return self._complete(waiting)

    def _complete(self, waiting: Mapping[int, int]) -> tuple[int, Inbox] | None:
        self.check()
        for chunk, step in waiting.items():
            inbox = self._inboxes.get((chunk, step))
            if len(inbox or ()) == len(self._expected(chunk, step)):
                self._inboxes.pop((chunk, step), None)
                self._taken.add((chunk, step))
                return chunk, inbox if inbox is not None else Inbox()
        return None

    def _missing(self, waiting: Mapping[int, int]) -> str:
        found: set[int] = set()
        for chunk, step in waiting.items():
            found |= set(self._expected(chunk, step)) - set(self._inboxes.get((chunk, step), ()))
        peers = sorted(found)
        return f"peer{'s' if len(peers) > 1 else ''} {', '.join(map(str, peers))}"

    def _expected(self, chunk: int, step: int) -> Mapping[int, Spec]:
        routes = self._routes[chunk]
        return routes.incoming[step] if step < routes.steps else {}

    def _objection(self, sender: int, spec: Spec, place: Place) -> str:
        """Return why a frame is not wanted, or an empty string."""
        mine = self.place
        if place.run != mine.run:
            return "another run"
        if (place.round, place.attempt) != (mine.round, mine.attempt):
            return "another attempt"
        if place.chunk >= len(self._routes):
            return "not announced"
        announced = self._expected(place.chunk, place.step).get(sender)
        if announced is None:
            return "not announced"
        if announced != spec:
            return "wrong length or dtype"
        key = (place.chunk, place.step)
        if key in self._taken or sender in self._inboxes.get(key, ()):
            return "duplicate"
        return ""
