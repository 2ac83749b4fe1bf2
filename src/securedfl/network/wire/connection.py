"""One connection: a socket, its TLS and its frames, from the handshake to the end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from securedfl.errors import SecuredFLError
from securedfl.network.wire import frames
from securedfl.network.wire.exchange import Exchange
from securedfl.network.wire.frames import MOST_WORDS, PIECE, Kind
from securedfl.network.wire.identity import Tls
from securedfl.network.wire.loop import Loop
from securedfl.network.wire.values import FrameError, IdentityError, Inlet, Limits

_PIECES_AT_ONCE = 4


class Handler:
    """What a connection tells, in the I/O thread. A `SecuredFLError` that is raised closes the connection."""

    def on_secured(self, connection: Connection) -> None:
        """Learn that TLS is done; the certificate is checked against the authority and nothing else."""

    def on_frame(self, connection: Connection, kind: Kind, payload: bytes) -> None:
        """Take a frame about the connection itself."""

    def on_control(self, connection: Connection, data: bytes) -> None:
        """Take a control message."""

    def inlet(self, _connection: Connection, _key: bytes) -> Inlet | None:
        """Return the inlet of a stream, if it is accepted already."""
        return None

    def on_closed(self, connection: Connection, reason: str) -> None:
        """Learn that the connection is gone; said once."""


class Connection:
    """A connection that speaks TLS from its first byte.

    Attributes
    ----------
    peer
        The name at the other end: proved by a certificate once the connection is secured; before, expected or empty.
    through
        The relay in between, if there is one.
    dialled
        Whether this side greets first.
    secured, greeted
        Whether TLS is done, and whether the other side has said what the connection is for.
    settled
        Whether it is a link, or waits at a relay; that must be so in time.
    unfit
        Whether it was closed because one side refused the other: its key, its version, or what it said.
    began, heard, spoke
        When it was made, and when bytes last arrived and left.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        tls: Tls,
        limits: Limits,
        handler: Handler,
        *,
        peer: str = "",
        through: str | None = None,
        dialled: bool = False,
    ) -> None:
        self._loop, self._sock, self._tls, self._handshake = loop, sock, tls, limits.handshake
        self.handler = handler
        self.peer, self.through, self.dialled = peer, through, dialled
        self.exchange = Exchange(self, limits, loop.counters, time.monotonic)
        self.closed = self.secured = self.greeted = self.settled = self.unfit = self._writing = False
        self._pending = memoryview(b"")
        self.began = self.heard = self.spoke = time.monotonic()

    def start(self, received: bytes = b"") -> None:
        """Begin; with bytes that came before, if there are any."""
        self._loop.add_reader(self._sock, self.attempt, self._read)
        self._loop.call_later(self._handshake, self._hurry)
        self.attempt(self._take, memoryview(received))

    @property
    def certificate(self) -> bytes:
        """The other side's certificate (DER)."""
        return self._tls.certificate

    @property
    def idle(self) -> bool:
        """Whether it is open and nothing waits to be sent."""
        return not self.closed and not self._pending

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it now."""
        self.attempt(self._write)

    def reply(self, kind: Kind, payload: bytes = b"") -> None:
        """Send a frame about the connection itself."""
        self.attempt(self.exchange.reply, kind, 0, payload)
        self.flush()

    def close(self, reason: str, *, tell: bool = False) -> None:
        """Hang up; ``tell`` lets the other side know why, if the socket takes it at once."""
        if self.closed:
            return
        if tell and self.secured:
            with suppress(SecuredFLError, OSError):
                self.exchange.reply(Kind.CLOSE, 0, bytes([self.unfit]) + reason.encode()[:MOST_WORDS])
                self._write()
        self.closed = True
        self._loop.unwatch(self._sock)
        self._sock.close()
        self.exchange.fail(reason)
        self.handler.on_closed(self, reason)

    def detach(self) -> tuple[socket.socket, bytes]:
        """Give the socket away, with the bytes that came after this TLS; nothing may wait to be sent."""
        self.closed = True
        self._loop.unwatch(self._sock)
        # what a liar sent besides must not be taken for frames: the socket could be given away twice
        self.exchange.fail("the socket was given away")
        return self._sock, self._tls.rest()

    def _hurry(self) -> None:
        if not self.settled:
            self.close("it did not say who it is in time", tell=True)

    # -- of the socket ----------------------------------------------------------------------------------------

    def attempt(self, action: Callable[..., object], *arguments: Any) -> None:
        """Do something that may fail; then the connection is over, and nothing else."""
        if self.closed:
            return
        try:
            action(*arguments)
        except SecuredFLError as error:
            self.unfit = isinstance(error, FrameError | IdentityError)
            if isinstance(error, FrameError):
                self._loop.counters["refused: malformed"] += 1
            self.close(str(error), tell=True)
        except OSError as error:
            self.close(error.strerror or "the connection broke off")
        except Exception:
            self.close("an error in this process", tell=True)
            raise

    def _read(self) -> None:
        try:
            count = self._sock.recv_into(self._loop.buffer)
        except (BlockingIOError, InterruptedError):
            return
        if not count:
            self.close("the other side hung up")
            return
        self.heard = time.monotonic()
        self._loop.bytes_in += count
        self._take(self._loop.buffer[:count])

    def _take(self, received: memoryview) -> None:
        self._tls.feed(received)
        if not self.secured:
            try:
                self.secured = self._tls.handshake()
            finally:
                # also what TLS has to say about a handshake that failed
                self._write()
            if not self.secured:
                return
            self.handler.on_secured(self)
        if not self.closed:
            self.exchange.advance(self._tls.read)
        if not self.closed:
            self._write()

    def _write(self) -> None:
        """Send what there is, as far as the socket takes it; after some of it, it is the turn of others."""
        more = True
        for _ in range(_PIECES_AT_ONCE):
            if not self._pending:
                self._fill()
            if not self._pending:
                more = False
                break
            try:
                sent = self._sock.send(self._pending)
            except (BlockingIOError, InterruptedError):
                break
            self.spoke = time.monotonic()
            self._loop.bytes_out += sent
            self._pending = self._pending[sent:]
            if self._pending:
                break
        if more and not self._writing:
            self._loop.add_writer(self._sock, self.attempt, self._write)
        elif not more and self._writing:
            self._loop.remove_writer(self._sock)
        self._writing = more

    def _fill(self) -> None:
        """Encrypt what is to be sent next: many small frames, or one piece of a stream."""
        size = 0
        while self.secured and size < PIECE:
            buffers = self.exchange.pull()
            if not buffers:
                break
            for buffer in buffers:
                self._tls.write(buffer)
                size += len(buffer)
        self._pending = memoryview(self._tls.to_send())

    # -- of the exchange --------------------------------------------------------------------------------------

    def on_control(self, data: bytes) -> None:
        """Take a control message."""
        self.handler.on_control(self, data)

    def on_frame(self, kind: Kind, payload: bytes) -> None:
        """Take a frame about the connection itself."""
        if kind is Kind.CLOSE:
            self.unfit = payload[:1] == bytes([True])
            self.close(f"the other side hung up: {frames.text(payload[1:])}")
        elif kind is not Kind.PONG:
            self.handler.on_frame(self, kind, payload)

    def inlet(self, key: bytes) -> Inlet | None:
        """Return the inlet of a stream, if it is accepted already."""
        return self.handler.inlet(self, key)
