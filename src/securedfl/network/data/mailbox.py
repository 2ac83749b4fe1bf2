"""The mailbox of one attempt: takes messages in any order, drops what it does not expect, hands out whole steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from securedfl.errors import PeerLostError, SecuredFLError
from securedfl.network.data.parcels import Position, Spec, message_of, read_head
from securedfl.network.data.routes import Routes
from securedfl.network.wire.values import FrameError
from securedfl.protocols.steps import Inbox

Excused = Callable[[frozenset[int]], bool]
Step = tuple[int, int]
"""A chunk, and a step of it."""


class StalledError(PeerLostError):
    """An attempt makes no progress; ``peers`` are those that were waited for, numbered as in the recipe."""

    def __init__(self, peers: frozenset[int], text: str) -> None:
        self.peers = peers
        super().__init__(text)


class Mailbox:
    """Collects the messages of one attempt, from the I/O thread, for one reader.

    Memory is bounded by the protocol itself: a message that the routes do not announce, that has another length or
    dtype, or that came before, is dropped.

    Parameters
    ----------
    place
        Run, round and attempt that messages must name; step and chunk are not looked at.
    routes
        What this peer receives, per chunk.
    """

    def __init__(self, place: Position, routes: Sequence[Routes]) -> None:
        self.place = place
        self._routes = routes
        self._inboxes: dict[Step, Inbox] = {}
        self._taken: set[Step] = set()
        self._changed = threading.Condition()
        self._failure: SecuredFLError | None = None
        self._last_arrival = time.monotonic()

    def expects(self, sender: int, head: bytes, nbytes: int) -> bool:
        """Tell whether a message of that head and length is announced and new."""
        with self._changed:
            return self._read(sender, head, nbytes) is not None

    def deliver(self, sender: int, head: bytes, body: memoryview) -> bool:
        """Take a message; return whether it was expected and new."""
        with self._changed:
            found = self._read(sender, head, len(body))
            if found is None:
                return False
            step, spec = found
            self._inboxes.setdefault(step, Inbox())[sender] = message_of(spec, body)
            self._last_arrival = time.monotonic()
            if len(self._inboxes[step]) == len(self._expected(step)):
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
        self._last_arrival = time.monotonic()
        with self._changed:
            while True:
                found = self._complete(waiting)
                if found is not None:
                    return found
                left = self._last_arrival + patience - time.monotonic()
                if left <= 0:
                    missing = frozenset(sender for step in waiting.items() for sender in self._lacking(step))
                    if not excused(missing):
                        raise StalledError(missing, f"nothing arrived for {patience:g} s")
                    self._last_arrival = time.monotonic()
                self._changed.wait(max(left, 0.01))

    def poll(self, waiting: Mapping[int, int]) -> tuple[int, Inbox] | None:
        """Do the same without waiting; None if no chunk has all its messages."""
        with self._changed:
            return self._complete(waiting)

    def lacks(self, sender: int) -> bool:
        """Tell whether messages of a sender are still to come, so that its stream must not end yet."""
        with self._changed:
            steps = ((chunk, step) for chunk, routes in enumerate(self._routes) for step in range(len(routes)))
            return any(step not in self._taken and sender in self._lacking(step) for step in steps)

    def _complete(self, waiting: Mapping[int, int]) -> tuple[int, Inbox] | None:
        if self._failure:
            raise self._failure
        for step in waiting.items():
            inbox = self._inboxes.get(step, Inbox())
            if len(inbox) == len(self._expected(step)):
                self._inboxes.pop(step, None)
                self._taken.add(step)
                return step[0], inbox
        return None

    def _lacking(self, step: Step) -> set[int]:
        """Return whose messages of a step are not here."""
        return self._expected(step).keys() - self._inboxes.get(step, Inbox()).keys()

    def _expected(self, step: Step) -> Mapping[int, Spec]:
        chunk, number = step
        known = chunk < len(self._routes) and number < len(self._routes[chunk])
        return self._routes[chunk][number] if known else {}

    def _read(self, sender: int, head: bytes, nbytes: int) -> tuple[Step, Spec] | None:
        """Return what a head announces; None if it is of another attempt, not as the routes say, or here already."""
        try:
            place, spec = read_head(head)
        except FrameError:
            return None
        mine, step = self.place, (place.chunk, place.step)
        if (place.run, place.round, place.attempt) != (mine.run, mine.round, mine.attempt):
            return None
        if self._expected(step).get(sender) != spec or nbytes != spec.nbytes:
            return None
        return None if step in self._taken or sender in self._inboxes.get(step, ()) else (step, spec)
