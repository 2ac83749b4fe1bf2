"""Links: the network of one peer. One connection per other peer, whoever opened it, used in both directions.

Both sides may dial at once, and relays may join them at the same time, so that there can be several connections
between two peers. The one whose name comes first chooses: it says LINK on one of them, and that is the link. It keeps a
link that answers and takes a new connection only if the old one does not, or leads through a relay and the new one not.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from securedfl.errors import ConfigError, PeerLostError
from securedfl.network.links import frames
from securedfl.network.links.connection import Connection
from securedfl.network.links.door import Door
from securedfl.network.links.frames import Kind
from securedfl.network.links.identity import Identity, identify, require
from securedfl.network.links.keys import KeyFiles
from securedfl.network.links.loop import Loop
from securedfl.network.links.pursuit import Pursuit, Site
from securedfl.network.links.relay import Relay
from securedfl.network.links.streams import Outgoing
from securedfl.network.links.values import (
    Event,
    FrameError,
    IdentityError,
    Inlet,
    Limits,
    LinkDown,
    LinkUp,
    Member,
    Message,
    Reach,
    Refused,
    Unreachable,
)

PROBE = 3.0
"""Seconds that a link has to answer before another connection takes its place."""
_ALREADY = "the two are linked already"
_MOST_SAID = 256


class Links:
    """The links of one peer. All methods may be called from any thread.

    Parameters
    ----------
    me
        This peer's name in the roster.
    files
        Its key, its certificate, and the federation's authority.
    roster
        All peers, this one included. A `Member` without a host cannot be dialled.
    on_event
        Told every event, in the I/O thread: it must be quick, for instance the ``put`` of a queue.
    listen
        ``HOST:PORT``; None only dials out. `address` says where it listens.
    relays
        Named relays. Besides them any listening peer of the roster joins two others.
    proxy
        ``http://HOST:PORT`` of an HTTP CONNECT proxy; None takes what HTTPS_PROXY says, an empty text none.
    idle
        Seconds of silence after which a link is lost. Links speak at least three times as often.
    limits
        How much others may ask for.

    Attributes
    ----------
    counters
        What was refused or dropped, by kind.
    """

    def __init__(
        self,
        me: str,
        files: KeyFiles,
        roster: Sequence[Member],
        *,
        on_event: Callable[[Event], None],
        listen: str | None = None,
        relays: Sequence[Member] = (),
        proxy: str | None = None,
        idle: float = 10.0,
        limits: Limits | None = None,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._limits, self._idle, self._on_event = limits or Limits(), idle, on_event
        self._loop = Loop(me)
        identity = _identity(me, files)
        self._site = Site(
            me=me,
            loop=self._loop,
            limits=self._limits,
            identity=identity,
            roster=_by_name(roster),
            relays=_by_name(relays),
            proxy=proxy,
            handler=self,
            linked=lambda peer: peer in self._links,
        )
        if me not in self._site.roster:
            raise ConfigError(f"{me!r} is not in the roster; it lists {', '.join(self._site.roster)}")
        self._links: dict[str, Connection] = {}
        self._candidates: dict[str, Connection] = {}
        self._pursuits: dict[str, Pursuit] = {}
        self._inlets: dict[tuple[str, bytes], Inlet] = {}
        self._reasons: dict[str, str] = {}
        self._said: set[tuple[str, str]] = set()
        self._relay = Relay(self._loop, self._limits.joined)
        self._door = Door(self._loop, listen, self._limits, self._welcome) if listen else None
        self._swept = time.monotonic()
        self._loop.start()
        self._loop.call(self._begin)

    # -- for everybody ----------------------------------------------------------------------------------------

    @property
    def address(self) -> str | None:
        """Where it listens, if it does."""
        return self._door.address if self._door else None

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent by all links so far, TLS included."""
        return self._loop.bytes_in, self._loop.bytes_out

    def send(self, peer: str, data: bytes) -> bool:
        """Send a control message of at most 1 MiB; False if there is no link or too much waits. It may get lost."""
        link = self._links.get(peer)
        if link is None or not link.exchange.send(data):
            return False
        self._loop.call(link.flush)
        return True

    def open(self, peer: str, key: bytes) -> Outgoing:
        """Open a bulk stream to a peer, under a key of at most 512 bytes; `PeerLostError` if there is no link."""
        link = self._links.get(peer)
        if link is None:
            raise PeerLostError(f"there is no link to {peer}: {self._reasons.get(peer, 'not yet')}")

        def wake(stream: Outgoing) -> None:
            self._loop.call(self._send_stream, link, stream)

        stream = Outgoing(peer, key, self._limits.queue, wake)
        wake(stream)
        return stream

    def accept(self, peer: str, key: bytes, inlet: Inlet) -> None:
        """Take the bulk stream that a peer has opened or will open under a key."""
        self._loop.call(self._accept, peer, key, inlet)

    def forget(self, peer: str, key: bytes) -> None:
        """Take the stream of a key no more; its sender is told. Its inlet is not called again once this returns."""
        done = threading.Event()

        def forget() -> None:
            self._inlets.pop((peer, key), None)
            if peer in self._links:
                self._links[peer].exchange.stop(key, "the receiver has stopped it")
                self._links[peer].flush()
            done.set()

        self._loop.call(forget)
        done.wait(5)

    def send_array(self, peer: str, key: bytes, array: Any, timeout: float = 60.0) -> None:
        """Send one array through a stream of its own, and wait until the peer has it."""
        stream = self.open(peer, key)
        try:
            stream.put(b"", array, timeout)
            stream.finish(timeout)
        except PeerLostError:
            stream.cancel()
            raise

    def receive_array(self, peer: str, key: bytes, into: Any, timeout: float = 60.0) -> None:
        """Receive one array of a known number of bytes; `PeerLostError` if it does not come."""
        inlet = _One(memoryview(into).cast("B"))
        self.accept(peer, key, inlet)
        if not inlet.over.wait(timeout):
            self.forget(peer, key)
        if not inlet.complete:
            raise PeerLostError(f"nothing came from {peer}: {inlet.reason or f'not within {timeout:g} s'}")

    def reaches(self) -> dict[str, Reach]:
        """Return for every other peer whether it is linked, and how, or why not."""
        found = {}
        for peer in self._site.roster:
            link = self._links.get(peer)
            if link is not None:
                found[peer] = Reach(True, link.through)
            elif peer != self._site.me:
                found[peer] = Reach(False, None, self._reasons.get(peer, "not yet"))
        return found

    def update(
        self,
        *,
        roster: Sequence[Member] | None = None,
        relays: Sequence[Member] | None = None,
        files: KeyFiles | None = None,
    ) -> None:
        """Take another roster, other relays or a renewed key while running; links that do not fit are dropped."""
        identity = _identity(self._site.me, files) if files else None
        self._loop.call(self._update, roster, relays, identity)

    def close(self) -> None:
        """Hang up on everybody and stop; no more events."""
        self._on_event = lambda _event: None
        self._loop.call(self._end)
        self._loop.stop()

    # -- in the I/O thread ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._door is not None:
            self._door.open()
        self._pursue()
        self._sweep()

    def _end(self) -> None:
        for pursuit in self._pursuits.values():
            pursuit.stop()
        self._pursuits.clear()
        if self._door is not None:
            self._door.close()
        self._relay.close()
        for connection in list(self._site.connections):
            connection.close("the peer is stopping", tell=True)

    def _pursue(self) -> None:
        """Pursue exactly the peers of the roster."""
        others = self._site.roster.keys() - {self._site.me}
        for peer in self._pursuits.keys() - others:
            self._pursuits.pop(peer).stop()
        for peer in sorted(others - self._pursuits.keys()):
            self._pursuits[peer] = Pursuit(self._site, peer, self._try_failed)
            self._pursuits[peer].begin()

    def _update(
        self, roster: Sequence[Member] | None, relays: Sequence[Member] | None, identity: Identity | None
    ) -> None:
        self._site.relays = self._site.relays if relays is None else _by_name(relays)
        self._site.identity = identity or self._site.identity
        if roster is None:
            return
        self._site.roster = _by_name(roster)
        self._pursue()
        for connection in [one for one in self._site.connections if one.secured and one.handler is self]:
            try:
                identify(connection.certificate, self._site.roster)
            except IdentityError:
                connection.close("the roster has changed and this certificate is no longer in it", tell=True)

    def _sweep(self) -> None:
        """Ping where nothing was said lately, and hang up where nothing was heard for long."""
        now, pause = time.monotonic(), self._idle / 6
        # if this process itself has slept, silence says nothing about the others
        slept = now - self._swept > self._idle / 2
        # relays give sockets away without a word
        self._site.connections -= {connection for connection in self._site.connections if connection.closed}
        for connection in list(self._site.connections):
            if slept:
                connection.heard = now
            elif now - connection.heard > self._idle:
                connection.close(f"nothing was heard for {self._idle:g} s")
            elif now - connection.spoke > self._idle / 3 and connection.secured:
                connection.reply(Kind.PING)
        self._swept = now
        self._relay.sweep()
        self._loop.later(pause, self._sweep)

    def _send_stream(self, link: Connection, stream: Outgoing) -> None:
        if link.closed:
            stream.fail("the link was lost")
        else:
            link.exchange.ready(stream)
            link.flush()

    def _accept(self, peer: str, key: bytes, inlet: Inlet) -> None:
        link = self._links.get(peer)
        if link is not None and link.exchange.accept(key, inlet):
            link.flush()
        else:
            self._inlets[peer, key] = inlet

    def _welcome(self, sock: socket.socket) -> Connection:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Connection(self._loop, sock, self._site.identity.accepting(), self._limits, self)

    def _say(self, event: Unreachable | Refused) -> None:
        """Say something once."""
        key = (getattr(event, "peer", ""), event.reason)
        if key not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(key)
            self._on_event(event)

    def _try_failed(self, peer: str, reason: str) -> None:
        if _ALREADY not in reason and peer not in self._links and peer in self._site.roster:
            self._reasons[peer] = reason
            self._say(Unreachable(peer, reason))

    # -- of connections ---------------------------------------------------------------------------------------

    def on_secured(self, connection: Connection) -> None:
        """Find out who is there, and greet if this side dialled."""
        self._site.connections.add(connection)
        if connection.peer:
            if connection.peer not in self._site.roster:
                raise IdentityError(f"{connection.peer} is not in the roster any more")
            require(connection.certificate, self._site.roster[connection.peer])
        else:
            connection.peer = identify(connection.certificate, self._site.roster)
        if connection.dialled:
            connection.reply(Kind.HELLO, bytes([frames.VERSION]))

    def on_frame(self, connection: Connection, kind: Kind, payload: bytes) -> None:
        """Take a greeting, the choice of a link, or the wish to be joined with another peer."""
        inbound = not connection.dialled and connection.through is None
        first = self._site.me < connection.peer
        if kind is Kind.HELLO and not connection.greeted:
            if payload != bytes([frames.VERSION]):
                raise FrameError(f"{connection.peer} speaks another version; install the same one at all sites")
            connection.greeted = True
            if not connection.dialled:
                connection.reply(Kind.HELLO, bytes([frames.VERSION]))
            if first:
                self._judge(connection)
        elif kind is Kind.LINK and connection.greeted and not first and not connection.exchange.linked:
            self._link(connection)
        elif kind is Kind.JOIN and inbound and not connection.greeted:
            target = payload.decode("ascii", "replace")
            if target not in self._site.roster:
                raise FrameError("the other peer is not in the roster")
            connection.greeted = True
            if self._door is not None:
                self._door.finished(connection)
            self._relay.join(connection, target)
        else:
            raise FrameError(f"a frame {kind.name} at the wrong time")

    def on_control(self, connection: Connection, data: bytes) -> None:
        """Hand a control message on."""
        self._on_event(Message(connection.peer, data))

    def inlet(self, connection: Connection, key: bytes) -> Inlet | None:
        """Return the inlet that waits for a stream."""
        return self._inlets.pop((connection.peer, key), None)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """Take note of a lost link, or of somebody who was refused."""
        peer = connection.peer
        self._site.connections.discard(connection)
        if self._door is not None:
            self._door.finished(connection)
        self._relay.closed(connection)
        if self._candidates.get(peer) is connection:
            del self._candidates[peer]
        if self._links.get(peer) is connection:
            del self._links[peer]
            self._reasons[peer] = reason
            self._on_event(LinkDown(peer, reason))
            if peer in self._candidates:
                self._choose(self._candidates.pop(peer))
            elif peer in self._pursuits:
                self._pursuits[peer].begin()
        elif not connection.greeted:
            if connection.dialled:
                self._try_failed(peer, reason)
            else:
                self.count("refused: stranger")
                self._say(Refused(reason))

    def count(self, what: str) -> None:
        """Count what was refused or dropped."""
        self.counters[what] += 1

    # -- which connection is the link -------------------------------------------------------------------------

    def _judge(self, connection: Connection) -> None:
        """Decide, as the peer whose name comes first, whether a connection becomes the link."""
        peer, link = connection.peer, self._links.get(connection.peer)
        if link is None or (link.through and not connection.through and not link.exchange.busy):
            self._choose(connection)
        else:
            earlier = self._candidates.pop(peer, None)
            if earlier is not None:
                earlier.close(_ALREADY, tell=True)
            self._candidates[peer] = connection
            asked = time.monotonic()
            link.reply(Kind.PING)

            def decide() -> None:
                if self._candidates.get(peer) is not connection:
                    return
                if link.heard > asked:
                    connection.close(_ALREADY, tell=True)
                else:
                    link.close("it does not answer, and the peer has dialled again")

            self._loop.later(PROBE, decide)

    def _choose(self, connection: Connection) -> None:
        connection.reply(Kind.LINK)
        if not connection.closed:
            self._link(connection)

    def _link(self, connection: Connection) -> None:
        """Make a connection the link."""
        peer = connection.peer
        old = self._links.get(peer)
        self._links[peer] = connection
        connection.exchange.linked = True
        if self._door is not None:
            self._door.finished(connection)
        if old is not None:
            old.close("another connection took its place")
        self._reasons.pop(peer, None)
        self._said = {(who, why) for who, why in self._said if who != peer}
        if peer in self._pursuits:
            self._pursuits[peer].linked(connection.through)
        self._on_event(LinkUp(peer, connection.through))


class _One:
    """The inlet of one array."""

    def __init__(self, into: memoryview) -> None:
        self._into = into
        self.over = threading.Event()
        self.complete, self.reason = False, ""

    def begin(self, _head: bytes, nbytes: int) -> memoryview | None:
        """Give the memory, if the length is right."""
        return self._into if nbytes == len(self._into) and not self.complete else None

    def arrived(self, _head: bytes, _body: memoryview) -> None:
        """Take note that it is complete."""
        self.complete = True

    def ended(self, reason: str) -> None:
        """Wake whoever waits."""
        self.reason = reason or "another length than expected"
        self.over.set()


def _identity(me: str, files: KeyFiles) -> Identity:
    identity = Identity(files)
    if identity.name != me:
        raise ConfigError(f"{files.certificate} is the certificate of {identity.name!r} and not of {me!r}")
    return identity


def _by_name(members: Sequence[Member]) -> Mapping[str, Member]:
    return {member.name: member for member in members}
