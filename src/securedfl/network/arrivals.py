"""What happened, in order, until the shell gets to it; of each other peer only so much waits."""

from __future__ import annotations

import queue
from collections import Counter

from securedfl.network.core import events as ev
from securedfl.network.wire import values as wire

MOST_WAITING = 256 << 10
"""Bytes of control messages of one peer that may wait; more are dropped, as links may drop them too."""
_LEAST_COST = 256

Arrival = ev.Event | wire.Event | BaseException | None


class Arrivals:
    """A queue that no peer can fill, nor keep from the others: whoever sends more than is read is not heard meanwhile.

    Attributes
    ----------
    counters
        Where it is counted what was dropped.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._queue: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        # each is written by one thread only: that of the links, and that of the shell
        self._came: Counter[str] = Counter()
        self._went: Counter[str] = Counter()

    def put(self, event: Arrival) -> None:
        """Take note of an event; from any thread, but control messages only from that of the links."""
        if isinstance(event, wire.ControlMessage):
            if self._came[event.peer] - self._went[event.peer] >= MOST_WAITING:
                self.counters["dropped: too many control messages"] += 1
                return
            self._came[event.peer] += _cost(event)
        self._queue.put(event)

    def get(self, timeout: float) -> Arrival:
        """Return the next event, for the shell; a `Tick` if there is none for so many seconds."""
        try:
            event = self._queue.get(timeout=timeout)
        except queue.Empty:
            return ev.Tick()
        if isinstance(event, wire.ControlMessage):
            self._went[event.peer] += _cost(event)
        return event


def _cost(message: wire.ControlMessage) -> int:
    return max(len(message.data), _LEAST_COST)
