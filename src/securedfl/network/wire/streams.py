"""Bulk streams: messages of any length from one peer to another, in order, with flow control per stream.

A sender sends no more than its receiver gave it credit for. Before a stream is accepted that is one window, which the
receiver keeps aside; afterwards bytes go straight to where the `Inlet` wants them. So a stream that nobody reads holds
up itself and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from securedfl.errors import PeerLostError
from securedfl.network.wire import frames
from securedfl.network.wire.frames import FLOW, PIECE, WINDOW, Kind
from securedfl.network.wire.values import FrameError, Inlet

Buffer = bytes | memoryview
_MESSAGE_COST = 64
"""What a message costs of the window besides its bytes, so that empty ones are not for free."""


class Outgoing:
    """A stream to a peer; made by `Links.open`. `put`, `finish` and `cancel` may be called from any thread.

    Parameters
    ----------
    peer, key
        To whom, and the name under which the receiver accepts it.
    limit
        Bytes that may wait here; `put` blocks while there are more.
    wake
        Tells the I/O thread that there is something to send.
    """

    def __init__(self, peer: str, key: bytes, limit: int, wake: Callable[[Outgoing], None]) -> None:
        if len(key) > frames.MAX_HEAD:
            raise ValueError("the key of a stream is too long")
        self.peer, self.key, self.channel = peer, key, -1
        self._limit, self._wake = limit, wake
        self._changed = threading.Condition()
        self._queue: deque[tuple[bytes, memoryview]] = deque()
        self._current: memoryview | None = None
        self._waiting_bytes = self._sent = 0
        self._credit = WINDOW
        self._closing = self._end_sent = self._done = False
        self._failure = ""

    def put(self, head: bytes, body: Any, timeout: float = 60.0) -> None:
        """Send a message; blocks while too much waits.

        Parameters
        ----------
        head
            At most 512 bytes that say what the message is.
        body
            Anything with a buffer, such as an array. It is not copied: it must stay as it is until it was sent.
        timeout
            Seconds within which there must be room again, half of ``limit``; else, or if the link breaks,
            `PeerLostError`.
        """
        if len(head) > frames.MAX_HEAD:
            raise ValueError("the head of a message is too long")
        view = memoryview(body)
        view = view.cast("B") if view.nbytes else memoryview(b"")
        with self._changed:
            if self._waiting_bytes >= self._limit:
                # half of it, so that threads do not take turns for every piece
                self._wait(lambda: 2 * self._waiting_bytes <= self._limit, timeout, "did not take what it was sent")
            self._check()
            self._queue.append((head, view))
            self._waiting_bytes += len(view)
        self._wake(self)

    def finish(self, timeout: float = 60.0) -> None:
        """Send what waits and wait until the receiver has all of it; `PeerLostError` if nothing moves for too long."""
        self._closing = True
        self._wake(self)
        with self._changed:
            self._wait(lambda: self._done, timeout, "did not confirm what it was sent", patient=True)

    def cancel(self) -> None:
        """Give up what has not been sent; the receiver is told."""
        self.fail("the stream was given up")
        self._wake(self)

    def fail(self, reason: str) -> None:
        """End the stream: whoever waits for it gets a `PeerLostError`."""
        with self._changed:
            self._failure = self._failure or reason
            self._queue.clear()
            self._current = None
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether nothing will be sent any more."""
        return self._done or bool(self._failure)

    def credit(self, nbytes: int) -> None:
        """Learn that the receiver has room for more."""
        self._credit += nbytes

    def confirm(self) -> None:
        """Learn that the receiver has everything."""
        if not self._end_sent:
            raise FrameError("the end of a stream was confirmed that has not ended")
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def pull(self) -> list[Buffer]:
        """Return the next frame or two as buffers, for the I/O thread; nothing if there is none or no credit."""
        if self._failure or self._end_sent:
            return []
        small, view = b"", self._current
        if view is None:
            with self._changed:
                if not self._queue:
                    if not self._closing:
                        return []
                    self._end_sent = True
                    return [frames.frame(Kind.END, self.channel)]
                head, view = self._queue[0]
                payload = frames.message(head, len(view))
                if self._credit < len(payload) + _MESSAGE_COST:
                    return []
                self._credit -= len(payload) + _MESSAGE_COST
                self._queue.popleft()
            small = frames.frame(Kind.MESSAGE, self.channel, payload)
        length = min(len(view), PIECE, self._credit)
        self._credit -= length
        self._current = view[length:] if length < len(view) else None
        with self._changed:
            self._waiting_bytes -= length
            self._sent += length
            if 2 * self._waiting_bytes <= self._limit:
                self._changed.notify_all()
        if not length:
            return [small] if small else []
        return [small + frames.header(Kind.DATA, self.channel, length), view[:length]]

    def _wait(self, ready: Callable[[], bool], timeout: float, complaint: str, *, patient: bool = False) -> None:
        """Wait for something; with patience longer, as long as a piece, or all that waits, is taken in that time."""
        deadline, before, least = time.monotonic() + timeout, self._sent, min(PIECE, self._waiting_bytes)
        while not self._failure and not ready():
            left = deadline - time.monotonic()
            if left > 0:
                self._changed.wait(left)
            elif not patient or self._sent == before or self._sent < before + least:
                raise PeerLostError(f"{self.peer} {complaint} within {timeout:g} s")
            else:
                deadline, before, least = time.monotonic() + timeout, self._sent, min(PIECE, self._waiting_bytes)
        self._check()

    def _check(self) -> None:
        if self._failure:
            raise PeerLostError(f"a stream to {self.peer} broke off: {self._failure}")


class Incoming:
    """A stream from a peer, in the I/O thread: keeps one window aside until it is accepted, then fills the inlet.

    Parameters
    ----------
    key, channel
        Its name, and the sender's number for it.
    reply
        Sends a frame to the sender.
    """

    def __init__(self, key: bytes, channel: int, reply: Callable[[Kind, int, bytes], None]) -> None:
        self.key, self.channel, self.over = key, channel, False
        self._reply = reply
        self._inlet: Inlet | None = None
        self._stopped = False
        self._parked: list[tuple[bytes, int] | bytearray | None] = []
        self._credit = WINDOW
        self._owed = 0
        self._announced = self._taken = 0
        self._head = b""
        self._left = 0
        self._body: memoryview | None = None
        self._landing: bytearray | None = None

    def accept(self, inlet: Inlet) -> None:
        """Begin to fill an inlet, with what was kept aside first."""
        if self._inlet is not None or self._stopped:
            return
        self._inlet = inlet
        self._owed = FLOW - self._credit
        parked, self._parked = self._parked, []
        for item in parked:
            if item is None:
                self._finish()
            elif isinstance(item, tuple):
                self._begin(*item)
            else:
                self._copy(item)
        self._give_credit()

    def stop(self, reason: str) -> None:
        """Tell the sender that nobody wants the stream, and drop what is still on its way."""
        if not self._stopped:
            self._stopped = True
            self._parked.clear()
            self._inlet = self._body = None
            self._reply(Kind.STOP, self.channel, reason.encode()[:512])

    def broke_off(self, reason: str) -> None:
        """Tell the inlet that no more will come."""
        self.over = True
        inlet, self._inlet, self._body = self._inlet, None, None
        self._parked.clear()
        if inlet is not None:
            inlet.ended(reason)

    def on_message(self, payload: bytes) -> None:
        """Take the announcement of a message."""
        head, nbytes = frames.read_message(payload)
        if self._announced != self._taken:
            raise FrameError("a message began within another")
        self._spend(len(payload) + _MESSAGE_COST)
        self._announced, self._taken = nbytes, 0
        if self._inlet is not None:
            self._begin(head, nbytes)
        elif not self._stopped:
            self._parked.append((head, nbytes))

    def target(self, length: int) -> memoryview | None:
        """Return where so many bytes of the message go; None if they are not wanted. `landed` follows."""
        if not length or length > self._announced - self._taken:
            raise FrameError("more bytes than were announced")
        self._spend(length)
        self._taken += length
        if self._inlet is not None:
            at = 0 if self._body is None else len(self._body) - self._left
            return None if self._body is None else self._body[at : at + length]
        if self._stopped:
            return None
        self._landing = bytearray(length)
        return memoryview(self._landing)

    def landed(self, length: int) -> None:
        """Take note that bytes are where `target` said."""
        landing, self._landing = self._landing, None
        if self._inlet is not None:
            # the stream may have been accepted while these bytes were arriving
            self._fill(length) if landing is None else self._copy(landing)
            self._give_credit()
        elif landing is not None and not self._stopped:
            self._parked.append(landing)

    def on_end(self) -> None:
        """Take the end of the stream."""
        if self._announced != self._taken:
            raise FrameError("a stream ended within a message")
        if self._inlet is not None:
            self._finish()
        elif self._stopped:
            self.over = True
        else:
            self._parked.append(None)

    def _spend(self, nbytes: int) -> None:
        self._credit -= nbytes
        if self._credit < 0:
            raise FrameError("more bytes than there was credit for")
        if self._inlet is not None:
            self._owed += nbytes

    def _begin(self, head: bytes, nbytes: int) -> None:
        assert self._inlet is not None  # noqa: S101 - for the type checker
        self._head, self._left = head, nbytes
        self._body = self._inlet.begin(head, nbytes)
        if self._body is not None and self._body.nbytes != nbytes:
            raise ValueError("an inlet gave room for another number of bytes than it was asked for")
        if not nbytes:
            self._fill(0)

    def _copy(self, data: bytearray) -> None:
        if self._body is not None:
            at = len(self._body) - self._left
            self._body[at : at + len(data)] = data
        self._fill(len(data))

    def _fill(self, length: int) -> None:
        self._left -= length
        if not self._left and self._body is not None and self._inlet is not None:
            body, self._body = self._body, None
            self._inlet.arrived(self._head, body)

    def _give_credit(self) -> None:
        """Give credit for what was taken, in large portions."""
        if self._owed >= FLOW // 4 and not self.over:
            self._reply(Kind.CREDIT, self.channel, frames.number(self._owed))
            self._credit += self._owed
            self._owed = 0

    def _finish(self) -> None:
        self._reply(Kind.DONE, self.channel, b"")
        self.broke_off("")
