"""The mailbox of one attempt: takes messages in any order, drops what it does not expect, hands out whole steps."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from securedfl.errors import PeerLostError, SecuredFLError
from securedfl.network.data.parcels import Place, Spec, message_of, read_head
from securedfl.network.data.routes import Routes
from securedfl.network.wire.values import FrameError
from securedfl.protocols.steps import Inbox

Excused = Callable[[frozenset[int]], bool]


class StalledError(PeerLostError):
    """An attempt makes no progress; ``peers`` are those that were waited for, numbered as in the recipe."""

    def __init__(self, peers: frozenset[int], text: str) -> None:
        self.peers = peers
        super().__init__(text)


class Mailbox:
    """Collects the messages of one attempt, from the I/O thread, for one reader.

    Memory is bounded by the protocol itself: a message that the routes do not announce, that has another length or
    dtype, or that came before, is dropped and counted.

    Parameters
    ----------
    place
        Run, round and attempt that messages must name; step and chunk are not looked at.
    routes
        What this peer receives, per chunk.
    """

    def __init__(self, place: Place, routes: Sequence[Routes]) -> None:
        self.place = place
        self.dropped: Counter[str] = Counter()
        self._routes = routes
        self._inboxes: dict[tuple[int, int], Inbox] = {}
        self._taken: set[tuple[int, int]] = set()
        self._changed = threading.Condition()
        self._failure: SecuredFLError | None = None
        self.last_arrival = time.monotonic()

    def expects(self, sender: int, head: bytes, nbytes: int) -> bool:
        """Tell whether a message of that head and length is announced and new."""
        with self._changed:
            return not self._counted(self._why_not(sender, head, nbytes))

    def deliver(self, sender: int, head: bytes, body: memoryview) -> bool:
        """Take a message; return whether it was expected and new."""
        with self._changed:
            if self._counted(self._why_not(sender, head, len(body))):
                return False
            place, spec = read_head(head)
            key = (place.chunk, place.step)
            self._inboxes.setdefault(key, Inbox())[sender] = message_of(spec, body)
            self.last_arrival = time.monotonic()
            if len(self._inboxes[key]) == len(self._expected(*key)):
                self._changed.notify_all()
        return True

    def fail(self, error: SecuredFLError) -> None:
        """End the attempt: the reader gets this error instead of messages."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def take(self, waiting: Mapping[int, int], patience: float, excused: Excused) -> tuple[int, Inbox]:
        """Wait until all messages of a step are there for one of the chunks; return that chunk and its inbox.

        Parameters
        ----------
        waiting
            The step that each chunk waits for.
        patience
            Seconds without any new message after which `StalledError` names the peers that are missing.
        excused
            Whether it is still too early to miss these peers; then the wait goes on.
        """
        self.last_arrival = time.monotonic()
        with self._changed:
            while True:
                found = self._complete(waiting)
                if found is not None:
                    return found
                left = self.last_arrival + patience - time.monotonic()
                if left <= 0:
                    missing = self._missing(waiting)
                    if not excused(missing):
                        raise StalledError(missing, f"nothing arrived for {patience:g} s")
                    self.last_arrival = time.monotonic()
                self._changed.wait(max(left, 0.01))

    def poll(self, waiting: Mapping[int, int]) -> tuple[int, Inbox] | None:
        """Do the same without waiting; None if no chunk has all its messages."""
        with self._changed:
            return self._complete(waiting)

    def lacks(self, sender: int) -> bool:
        """Tell whether messages of a sender are still to come, so that its stream must not end yet."""
        with self._changed:
            keys = ((c, s) for c, routes in enumerate(self._routes) for s in range(routes.steps))
            return any(
                sender in self._expected(*key) and key not in self._taken and sender not in self._inboxes.get(key, ())
                for key in keys
            )

    def _complete(self, waiting: Mapping[int, int]) -> tuple[int, Inbox] | None:
        if self._failure:
            raise self._failure
        for chunk, step in waiting.items():
            inbox = self._inboxes.get((chunk, step))
            if len(inbox or ()) == len(self._expected(chunk, step)):
                self._inboxes.pop((chunk, step), None)
                self._taken.add((chunk, step))
                return chunk, inbox if inbox is not None else Inbox()
        return None

    def _missing(self, waiting: Mapping[int, int]) -> frozenset[int]:
        found: set[int] = set()
        for chunk, step in waiting.items():
            found |= set(self._expected(chunk, step)) - set(self._inboxes.get((chunk, step), ()))
        return frozenset(found)

    def _expected(self, chunk: int, step: int) -> Mapping[int, Spec]:
        routes = self._routes[chunk]
        return routes.incoming[step] if step < routes.steps else {}

    def _counted(self, why: str) -> str:
        if why:
            self.dropped[why] += 1
        return why

    def _why_not(self, sender: int, head: bytes, nbytes: int) -> str:
        """Return why a message is not wanted, or an empty string."""
        mine = self.place
        try:
            place, spec = read_head(head)
        except FrameError:
            return "unreadable"
        if place.run != mine.run:
            return "another run"
        if (place.round, place.attempt) != (mine.round, mine.attempt):
            return "another attempt"
        if place.chunk >= len(self._routes):
            return "not announced"
        announced = self._expected(place.chunk, place.step).get(sender)
        if announced is None:
            return "not announced"
        if announced != spec or nbytes != spec.nbytes:
            return "wrong length or dtype"
        key = (place.chunk, place.step)
        if key in self._taken or sender in self._inboxes.get(key, ()):
            return "duplicate"
        return ""
