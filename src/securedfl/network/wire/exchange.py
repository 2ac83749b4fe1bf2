"""The frames of one connection, without its socket: bytes in, frames out, control before bulk.

Nothing here reads a clock of its own, waits or does input and output, so that anything can be fed to it.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

from securedfl.network.wire import frames
from securedfl.network.wire.frames import HEADER_BYTES, Kind
from securedfl.network.wire.streams import Buffer, Incoming, Outgoing
from securedfl.network.wire.values import FrameError, Inlet, Limits

Read = Callable[[memoryview], int]
"""Fills memory with bytes that have arrived and returns how many; 0 if there are none now."""
_LEAST_COST = 4096
_MOST_REPLIES = 4096
_MOST_STOPPED = 16
_NOWHERE = memoryview(bytearray(frames.PIECE))
"""Where bytes go that nobody wants."""


class Owner(Protocol):
    """What an exchange tells, in the I/O thread."""

    def on_control(self, data: bytes) -> None:
        """Take a control message."""

    def on_frame(self, kind: Kind, payload: bytes) -> None:
        """Take a frame about the connection itself: HELLO, LINK, CLOSE, JOIN, JOINED, PONG."""

    def inlet(self, key: bytes) -> Inlet | None:
        """Return the inlet of a stream, if it is accepted already."""


class Exchange:
    """What one connection has to say, and what it hears.

    Parameters
    ----------
    owner
        Told what arrives.
    limits, counters
        How much the other side may ask for, and what was refused or dropped of it, by kind.
    clock
        Gives the time.

    Attributes
    ----------
    linked
        Whether the connection is the link of two peers; before, nothing but greetings is taken.
    """

    def __init__(self, owner: Owner, limits: Limits, counters: Counter[str], clock: Callable[[], float]) -> None:
        self._owner, self._limits, self._counters, self._clock = owner, limits, counters, clock
        self._lock = threading.Lock()
        self._replies: deque[bytes] = deque()
        self._control: deque[Buffer] = deque()
        self._control_bytes = 0
        self._outgoing: dict[int, Outgoing] = {}
        self._ready: deque[Outgoing] = deque()
        self._incoming: dict[int, Incoming] = {}
        self._next_channel = 0
        self._head = memoryview(bytearray(HEADER_BYTES))
        self._target, self._at = self._head, 0
        self._frame: tuple[Kind, int, int] | None = None
        self._allowance, self._filled = 4.0 * limits.control_bytes, clock()
        self.linked = self._over = False

    # -- what leaves ------------------------------------------------------------------------------------------

    def reply(self, kind: Kind, channel: int = 0, payload: bytes = b"") -> None:
        """Send a small frame before everything else; for the I/O thread."""
        if len(self._replies) >= _MOST_REPLIES:
            raise FrameError("it sends much and reads nothing")
        self._replies.append(frames.frame(kind, channel, payload))

    def send(self, data: bytes) -> bool:
        """Send a control message, from any thread; return whether there was room for it."""
        if len(data) > frames.MAX_CONTROL:
            raise ValueError("a control message is too long")
        with self._lock:
            if self._control_bytes >= self._limits.queue:
                return False
            self._control_bytes += len(data)
            self._control.append(frames.header(Kind.CONTROL, 0, len(data)) + data)
        return True

    def ready(self, stream: Outgoing) -> None:
        """Take note that a stream has something to say, and open it if it is new; for the I/O thread."""
        if stream.channel < 0:
            if stream.over:
                return
            stream.channel = self._next_channel
            self._next_channel += 1
            self._outgoing[stream.channel] = stream
            self._replies.append(frames.frame(Kind.OPEN, stream.channel, stream.key))
        if stream.over and self._outgoing.pop(stream.channel, None) is not None:
            self._replies.append(frames.frame(Kind.RESET, stream.channel))
        elif stream not in self._ready:
            self._ready.append(stream)

    def pull(self) -> list[Buffer]:
        """Return the next to send: replies, then control messages, then a piece of one stream after the other."""
        if self._replies:
            data: list[Buffer] = [b"".join(self._replies)]
            self._replies.clear()
            return data
        with self._lock:
            if self._control:
                message = self._control.popleft()
                self._control_bytes -= len(message) - HEADER_BYTES
                return [message]
        while self._ready:
            stream = self._ready.popleft()
            found = stream.pull()
            if found:
                self._ready.append(stream)
                return found
        return []

    @property
    def busy(self) -> bool:
        """Whether streams are open."""
        return bool(self._outgoing or self._incoming)

    # -- what arrives -----------------------------------------------------------------------------------------

    def advance(self, read: Read) -> None:
        """Take all bytes that have arrived; `FrameError` for whatever is not as agreed."""
        while not self._over:
            if self._at < len(self._target):
                count = read(self._target[self._at :])
                if not count:
                    return
                self._at += count
                if self._at < len(self._target):
                    continue
            if self._frame is None:
                self._begin(*frames.read_header(self._head))
            else:
                (kind, channel, length), self._frame = self._frame, None
                target, self._target, self._at = self._target, self._head, 0
                if kind is Kind.DATA:
                    self._incoming[channel].landed(length)
                    self._forget_ended(channel)
                else:
                    self._take(kind, channel, bytes(target))

    def _begin(self, kind: Kind, channel: int, length: int) -> None:
        """Prepare the memory for what follows a header."""
        if kind >= Kind.CONTROL and not self.linked:
            raise FrameError(f"a frame {kind.name} before the two are linked")
        self._frame, self._at = (kind, channel, length), 0
        if kind is Kind.DATA:
            wanted = self._stream(channel).target(length)
            self._target = _NOWHERE[:length] if wanted is None else wanted
        else:
            self._target = memoryview(bytearray(length))

    def _take(self, kind: Kind, channel: int, payload: bytes) -> None:
        match kind:
            case Kind.CONTROL:
                if self._affordable(len(payload)):
                    self._owner.on_control(payload)
                else:
                    self._counters["dropped: too many control messages"] += 1
            case Kind.OPEN:
                self._open(channel, payload)
            case Kind.MESSAGE:
                self._stream(channel).on_message(payload)
            case Kind.END:
                self._stream(channel).on_end()
                self._forget_ended(channel)
            case Kind.RESET:
                # a sender may give up while the confirmation of the end is on its way to it
                if channel in self._incoming:
                    self._incoming[channel].broke_off("the sender gave it up")
                    self._forget_ended(channel)
            case Kind.CREDIT | Kind.DONE | Kind.STOP:
                self._answered(kind, self._outgoing.get(channel), payload)
            case Kind.PING:
                self.reply(Kind.PONG)
            case _:
                self._owner.on_frame(kind, payload)

    def _affordable(self, nbytes: int) -> bool:
        now, rate = self._clock(), self._limits.control_bytes
        self._allowance = min(4.0 * rate, self._allowance + (now - self._filled) * rate)
        self._filled = now
        cost = max(nbytes, _LEAST_COST)
        if cost > self._allowance:
            return False
        self._allowance -= cost
        return True

    def _open(self, channel: int, key: bytes) -> None:
        if channel in self._incoming or self.has(key):
            raise FrameError("a stream was opened twice")
        stream = self._incoming[channel] = Incoming(key, channel, self.reply)
        if len(self._incoming) > self._limits.streams + _MOST_STOPPED:
            raise FrameError("it opens streams without end")
        if len(self._incoming) > self._limits.streams:
            self._counters["refused: too many streams"] += 1
            stream.stop("too many streams are open")
            return
        inlet = self._owner.inlet(key)
        if inlet is not None:
            stream.accept(inlet)

    def _answered(self, kind: Kind, stream: Outgoing | None, payload: bytes) -> None:
        if stream is None:
            return
        if kind is Kind.CREDIT:
            stream.credit(frames.read_number(payload))
            self.ready(stream)
        elif kind is Kind.DONE:
            stream.confirm()
            del self._outgoing[stream.channel]
        else:
            stream.fail(frames.text(payload) or "the receiver does not want it")
            self.ready(stream)

    def _stream(self, channel: int) -> Incoming:
        if channel not in self._incoming:
            raise FrameError("bytes of a stream that is not open")
        return self._incoming[channel]

    def _forget_ended(self, channel: int) -> None:
        if self._incoming[channel].over:
            del self._incoming[channel]

    # -- streams ----------------------------------------------------------------------------------------------

    def has(self, key: bytes) -> bool:
        """Say whether a stream is open."""
        return any(stream.key == key for stream in self._incoming.values())

    def accept(self, key: bytes, inlet: Inlet) -> bool:
        """Fill an inlet from a stream; return whether it is open already."""
        for stream in self._incoming.values():
            if stream.key == key:
                stream.accept(inlet)
                self._forget_ended(stream.channel)
                return True
        return False

    def stop(self, key: bytes, reason: str) -> None:
        """Refuse a stream, if it is open."""
        for stream in self._incoming.values():
            if stream.key == key:
                stream.stop(reason)
                if self._frame is not None and self._frame[:2] == (Kind.DATA, stream.channel):
                    # what is arriving in this moment must not touch memory that may be used for something else now
                    self._target = _NOWHERE[: self._frame[2]]

    def fail(self, reason: str) -> None:
        """End all streams: the connection is gone."""
        self._over = True
        for outgoing in list(self._outgoing.values()):
            outgoing.fail(reason)
        for incoming in list(self._incoming.values()):
            incoming.broke_off(reason)
        self._outgoing.clear()
        self._incoming.clear()
