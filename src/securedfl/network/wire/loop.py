"""The I/O thread: one selector for all sockets of a process, timers, and calls from other threads."""

from __future__ import annotations

import heapq
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

log = logging.getLogger("securedfl.network")

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
Ready = Callable[[int], None]


class Timer:
    """Something to be done later, unless it is cancelled."""

    __slots__ = ("_action", "at")

    def __init__(self, at: float, action: Callable[[], None]) -> None:
        self.at, self._action = at, action

    def cancel(self) -> None:
        """Never do it."""
        self._action = _nothing

    def run(self) -> None:
        """Do it now."""
        self._action()

    def __lt__(self, other: Timer) -> bool:
        return self.at < other.at


class Loop:
    """Runs callbacks in its own thread: when sockets are ready, when time has come, when another thread asks.

    Attributes
    ----------
    buffer
        Memory for what a callback receives, for as long as the callback runs.
    bytes_in, bytes_out
        What all connections together received and sent.
    """

    def __init__(self, name: str) -> None:
        self.buffer = memoryview(bytearray(1 << 18))
        self.bytes_in = self.bytes_out = 0
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, READ, self._woken)
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[Timer] = []
        self._awake = self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"securedfl-links-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def call(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do something in the I/O thread soon; from any thread."""
        self._calls.append(lambda: action(*arguments))
        if not self._awake:
            self._awake = True
            # a full pipe wakes the thread as well
            with suppress(OSError):
                self._wake_out.send(b"!")

    def later(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Do something after some time; for the I/O thread."""
        timer = Timer(time.monotonic() + seconds, action)
        heapq.heappush(self._timers, timer)
        return timer

    def watch(self, sock: socket.socket, events: int, ready: Ready) -> None:
        """Call back when a socket is ready for any of some events; 0 forgets the socket."""
        try:
            known = self._selector.get_key(sock)
        except (KeyError, ValueError):
            if events:
                self._selector.register(sock, events, ready)
            return
        if not events:
            self._selector.unregister(sock)
        elif (known.events, known.data) != (events, ready):
            self._selector.modify(sock, events, ready)

    def stop(self) -> None:
        """End the thread after all calls made so far, and wait for that."""

        def end() -> None:
            self._stopping = True

        self.call(end)
        if threading.current_thread() is not self._thread:
            self._thread.join(10)

    def _woken(self, _events: int) -> None:
        with suppress(BlockingIOError):
            self._wake_in.recv(4096)

    def _run(self) -> None:
        while not self._stopping:
            timeout = None if not self._timers else max(self._timers[0].at - time.monotonic(), 0)
            for key, events in self._selector.select(0 if self._calls else timeout):
                # a callback before may have closed this socket
                if key.fd in self._selector.get_map():
                    self._guard(lambda key=key, events=events: key.data(events))  # type: ignore[misc]
            now = time.monotonic()
            while self._timers and self._timers[0].at <= now:
                self._guard(heapq.heappop(self._timers).run)
            self._awake = False
            while self._calls:
                self._guard(self._calls.popleft())
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    @staticmethod
    def _guard(action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            # one connection's trouble must not end the thread that serves all of them
            log.exception("an error in the I/O thread of the links")


def _nothing() -> None:
    pass
