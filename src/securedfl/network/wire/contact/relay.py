"""The relay: joins two peers that cannot reach each other, and sees nothing but the bytes of their own TLS.

Both dial it, prove who they are, and name each other by their certificates, so that nobody is joined in somebody
else's place, not with a former certificate either. Then TLS with the relay ends and the two speak TLS with each other
on the same sockets.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter

from securedfl.network.wire.connection import Connection, Handler
from securedfl.network.wire.contact.carry import Carrier
from securedfl.network.wire.contact.door import Door
from securedfl.network.wire.frames import Kind
from securedfl.network.wire.identity import Identity, fingerprint_of, name_of
from securedfl.network.wire.keys import KeyFiles
from securedfl.network.wire.loop import Loop
from securedfl.network.wire.values import FrameError, Limits

SILENCE = 120.0
"""Seconds without a byte after which a relay hangs up; links speak more often than that."""


class Relay:
    """Joins connections in pairs; for the I/O thread.

    Parameters
    ----------
    joined
        How many connections one certificate may have here, waiting or joined.
    """

    def __init__(self, loop: Loop, joined: int) -> None:
        self._loop, self._most = loop, joined
        self._waiting: dict[tuple[bytes, bytes], Connection] = {}
        self._pairs: dict[asyncio.Task[None], tuple[bytes, bytes]] = {}
        self._carrier = Carrier(loop)

    def join(self, connection: Connection, target: bytes) -> None:
        """Let a connection wait for the peer with a fingerprint, or join it with that peer if it waits already."""
        own = fingerprint_of(connection.certificate)
        earlier = self._waiting.pop((own, target), None)
        if earlier is not None:
            earlier.close("it asked again")
        used = Counter(one for pair in self._pairs.values() for one in pair)
        used.update(one for one, _ in self._waiting)
        if used[own] >= self._most:
            raise FrameError("too many connections through this relay")
        other = self._waiting.pop((target, own), None)
        if other is None:
            self._waiting[own, target] = connection
            connection.settled = True
            return
        for end in (other, connection):
            end.reply(Kind.JOINED)
        if not (other.idle and connection.idle):
            for end in (other, connection):
                end.close("the other peer is gone", tell=True)
            return
        (first, early), (second, late) = other.detach(), connection.detach()
        if early or late:
            # nobody may speak before both know that they are joined
            first.close()
            second.close()
            return
        pair = self._loop.create_task(self._carrier.join(first, second, SILENCE))
        self._pairs[pair] = (own, target)
        pair.add_done_callback(self._pairs.pop)

    def closed(self, connection: Connection) -> None:
        """Learn that a connection that waited is gone."""
        for pair, other in list(self._waiting.items()):
            if other is connection:
                del self._waiting[pair]

    def sweep(self) -> None:
        """Hang up on those that wait and from whom nothing has been heard for long."""
        now = time.monotonic()
        for connection in [one for one in self._waiting.values() if now - one.heard > SILENCE]:
            connection.close("nothing was heard for too long", tell=True)

    def close(self) -> None:
        """Hang up on everybody."""
        for pair in self._pairs:
            pair.cancel()
        self._carrier.close()
        for connection in list(self._waiting.values()):
            connection.close("the relay is stopping", tell=True)

    @property
    def pairs(self) -> int:
        """How many pairs are joined now."""
        return len(self._pairs)

    @property
    def bytes(self) -> int:
        """How many bytes they were sent."""
        return self._carrier.bytes


class RelayServer(Handler):
    """A relay on a host of its own: ``securedfl relay``.

    Whoever has a certificate of the federation's authority may use it. It knows no roster: the ends check each other.

    Parameters
    ----------
    files
        Its own key, its certificate and the federation's authority.
    listen
        ``HOST:PORT``.
    """

    def __init__(self, files: KeyFiles, listen: str, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._identity = Identity(files)
        self._door = Door(listen, self._limits)
        self.address = self._door.address
        self._loop = Loop("relay")
        self.counters = self._loop.counters
        self.relay = Relay(self._loop, self._limits.joined)
        self._loop.call(self._door.open, self._loop, self._welcome)
        self._loop.call(self._sweep)

    def close(self) -> None:
        """Stop; joined peers look for another way."""
        self._loop.call(self._door.close, self._loop)
        self._loop.call(self.relay.close)
        self._loop.end()

    def _sweep(self) -> None:
        self.relay.sweep()
        self._loop.call_later(SILENCE / 4, self._sweep)

    def _welcome(self, sock: socket.socket) -> Connection:
        return Connection(self._loop, sock, self._identity.accepting(), self._limits, self)

    def on_secured(self, connection: Connection) -> None:
        """Take the name in the certificate, which the authority vouches for."""
        connection.peer = name_of(connection.certificate)

    def on_frame(self, connection: Connection, kind: Kind, payload: bytes) -> None:
        """Join two peers; nothing else is done here."""
        if kind is not Kind.JOIN or connection.greeted:
            raise FrameError("this is a relay and no peer; list it under relays")
        # once: whoever asked twice would wait here for good, closed
        connection.greeted = True
        self.relay.join(connection, payload)

    def on_closed(self, connection: Connection, _reason: str) -> None:
        """Forget a connection."""
        if not connection.peer:
            self.counters["refused: stranger"] += 1
        self.relay.closed(connection)
