"""The hub: what one peer does with its connections, in the I/O thread. Which of them are links, and who is refused.

Both sides may dial at once, and relays may join them at the same time, so that there can be several connections
between two peers. The one whose name comes first chooses: it says LINK on one of them, and that is the link. It keeps a
link that answers and takes a new connection only if the old one does not, or leads through a relay and the new one not.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence

from securedfl.errors import ConfigError
from securedfl.network.wire import frames
from securedfl.network.wire.connection import Connection
from securedfl.network.wire.contact.door import Door
from securedfl.network.wire.contact.pursuit import Home, Pursuit
from securedfl.network.wire.contact.relay import Relay
from securedfl.network.wire.frames import Kind
from securedfl.network.wire.identity import Identity, identify, require
from securedfl.network.wire.keys import KeyFiles
from securedfl.network.wire.loop import Loop
from securedfl.network.wire.streams import Outgoing
from securedfl.network.wire.values import (
    ControlMessage,
    Endpoint,
    Event,
    FrameError,
    IdentityError,
    Inlet,
    Limits,
    LinkDown,
    LinkUp,
    Reach,
    Refused,
)

PROBE = 3.0
"""Seconds that a link has to answer before another connection takes its place."""
KEY_TURN = 10.0
"""Seconds for which a peer that is refused shows one key, while its files hold another."""
LINKS_AT_ONCE, LINK_PAUSE = 8, 5.0
"""How often a peer may be linked at once, and the seconds after which it may once more."""
_ALREADY = "the two are linked already"
_MOST_SAID, _MOST_FORGOTTEN = 256, 1024


class Hub(Home):
    """All connections of one peer. What is here is for the I/O thread; `Links` adds what others may call.

    Attributes
    ----------
    links
        The link of each linked peer.
    missing
        Why others are not linked.
    connections
        All that are secured, or should soon be.
    """

    def __init__(
        self,
        me: str,
        files: KeyFiles,
        roster: Sequence[Endpoint],
        *,
        on_event: Callable[[Event], None],
        listen: str | None = None,
        relays: Sequence[Endpoint] = (),
        proxy: str | None = None,
        idle: float = 10.0,
        limits: Limits | None = None,
    ) -> None:
        self.me, self.roster, self.relays, self.proxy = me, by_name(roster), by_name(relays), proxy
        if me not in self.roster:
            raise ConfigError(f"{me!r} is not in the roster; it lists {', '.join(self.roster)}")
        self.identity, self.limits = Identity(files, me), limits or Limits()
        self._former, self._switched = self.identity, -KEY_TURN
        self.door = Door(listen, self.limits) if listen else None
        self.loop, self._idle, self._tell = Loop(me), idle, on_event
        self.connections: set[Connection] = set()
        self.links: dict[str, Connection] = {}
        self.missing: dict[str, Reach] = {}
        self._candidates: dict[str, Connection] = {}
        self._pursuits: dict[str, Pursuit] = {}
        self._inlets: dict[tuple[str, bytes], Inlet] = {}
        self._forgotten: dict[tuple[str, bytes], None] = {}
        self._said: set[tuple[str, str]] = set()
        self._counted: dict[str, tuple[float, float]] = {}
        self._relay = Relay(self.loop, self.limits.joined)
        self._swept = time.monotonic()
        self.loop.call(self._begin)

    def _begin(self) -> None:
        """Listen, dial and keep watch."""
        if self.door is not None:
            self.door.open(self.loop, self._welcome)
        self._pursue()
        self._sweep()

    def _end(self) -> None:
        """Hang up on everybody."""
        for pursuit in self._pursuits.values():
            pursuit.stop()
        self._pursuits.clear()
        if self.door is not None:
            self.door.close(self.loop)
        self._relay.close()
        for connection in list(self.connections):
            connection.close("the peer is stopping", tell=True)

    def _pursue(self) -> None:
        """Pursue exactly the peers of the roster."""
        others = self.roster.keys() - {self.me}
        for peer in self._pursuits.keys() - others:
            self._pursuits.pop(peer).stop()
        for peer in sorted(others - self._pursuits.keys()):
            self._pursuits[peer] = Pursuit(self, peer)
            self._pursuits[peer].begin()

    def _update(self, roster: Sequence[Endpoint] | None, identity: Identity | None) -> None:
        """Take another roster or key; drop the links that do not fit."""
        if identity is not None:
            self.identity = self._former = identity
        if roster is None:
            return
        self.roster = by_name(roster)
        self._pursue()
        for connection in [one for one in self.connections if one.secured and one.handler is self]:
            try:
                identify(connection.certificate, self.roster)
            except IdentityError:
                connection.unfit = True
                connection.close("the roster has changed and this certificate is no longer in it", tell=True)

    def _sweep(self) -> None:
        """Ping where nothing was said lately, and hang up where nothing was heard for long."""
        # first, so that nothing that happens here can be the end of it
        self.loop.call_later(self._idle / 6, self._sweep)
        now = time.monotonic()
        # if this process itself has slept, silence says nothing about the others
        slept = now - self._swept > self._idle / 2
        # relays give sockets away without a word
        self.connections -= {connection for connection in self.connections if connection.closed}
        for connection in list(self.connections):
            if slept:
                connection.heard = now
            elif now - connection.heard > self._idle:
                connection.close(f"nothing was heard for {self._idle:g} s")
            elif now - connection.spoke > self._idle / 3 and connection.secured:
                connection.reply(Kind.PING)
        self._swept = now
        self._relay.sweep()

    def _send_stream(self, link: Connection, stream: Outgoing) -> None:
        """Send what a stream has to say."""
        if link.closed:
            stream.fail("the link was lost")
        else:
            link.exchange.ready(stream)
            link.flush()

    def _accept(self, peer: str, key: bytes, inlet: Inlet) -> None:
        """Take a stream, now or when it is opened."""
        self._forgotten.pop((peer, key), None)
        link = self.links.get(peer)
        if link is not None and link.exchange.has(key):
            link.attempt(link.exchange.accept, key, inlet)
            link.flush()
        else:
            self._inlets[peer, key] = inlet

    def _forget(self, peer: str, key: bytes) -> None:
        """Take a stream no more, nor when it is opened later."""
        if self._inlets.pop((peer, key), None) is not None:
            # it has not been opened yet
            self._forgotten[peer, key] = None
            if len(self._forgotten) > _MOST_FORGOTTEN:
                del self._forgotten[next(iter(self._forgotten))]
        link = self.links.get(peer)
        if link is not None:
            link.attempt(link.exchange.stop, key, "the receiver has stopped it")
            link.flush()

    def _welcome(self, sock: socket.socket) -> Connection:
        return Connection(self.loop, sock, self.identity.accepting(), self.limits, self)

    def _refused(self, peer: str, reason: str, *, unfit: bool = False) -> None:
        """Say once why somebody is not linked; strangers have no name."""
        if (peer, reason) not in self._said and len(self._said) < _MOST_SAID:
            self._said.add((peer, reason))
            self._tell(Refused(peer, reason, unfit))

    def try_failed(self, peer: str, reason: str, *, unfit: bool) -> None:
        """Learn why a peer could not be linked this time."""
        if _ALREADY not in reason and peer not in self.links and peer in self.roster:
            self.missing[peer] = Reach(False, None, reason, unfit)
            self._refused(peer, reason, unfit=unfit)
            if unfit:
                self._show_other_key()

    def _show_other_key(self) -> None:
        """Show the key that the files hold now, or again the one before: others may know first that it was renewed."""
        now = time.monotonic()
        if now - self._switched >= KEY_TURN:
            self._switched, self._former, self.identity = now, self.identity, self.identity.renewed() or self._former

    # -- of connections ---------------------------------------------------------------------------------------

    def on_secured(self, connection: Connection) -> None:
        """Find out who is there, and greet if this side dialled."""
        self.connections.add(connection)
        if connection.peer:
            if connection.peer not in self.roster:
                raise IdentityError(f"{connection.peer} is not in the roster any more")
            require(connection.certificate, self.roster[connection.peer])
        else:
            connection.peer = identify(connection.certificate, self.roster)
        if connection.dialled:
            connection.reply(Kind.HELLO, bytes([frames.VERSION]))

    def on_frame(self, connection: Connection, kind: Kind, payload: bytes) -> None:
        """Take a greeting, the choice of a link, or the wish to be joined with another peer."""
        inbound = not connection.dialled and connection.through is None
        first = self.me < connection.peer
        if kind is Kind.HELLO and not connection.greeted:
            if payload != bytes([frames.VERSION]):
                raise FrameError(f"{connection.peer} speaks another version; install the same one at all sites")
            connection.greeted = True
            if not connection.dialled:
                connection.reply(Kind.HELLO, bytes([frames.VERSION]))
            if first:
                self._count_link(connection.peer)
                self._judge(connection)
        elif kind is Kind.LINK and connection.greeted and not first and not connection.exchange.linked:
            self._count_link(connection.peer)
            self._link(connection)
        elif kind is Kind.JOIN and inbound and not connection.greeted:
            if payload.hex() not in (other.fingerprint for other in self.roster.values()):
                raise FrameError("the other peer is not in the roster")
            connection.greeted = True
            self._relay.join(connection, payload)
        else:
            raise FrameError(f"a frame {kind.name} at the wrong time")

    def on_control(self, connection: Connection, data: bytes) -> None:
        """Hand a control message on."""
        self._tell(ControlMessage(connection.peer, data))

    def inlet(self, connection: Connection, key: bytes) -> Inlet | None:
        """Return the inlet that waits for a stream; one that was forgotten is stopped as soon as it is open."""
        if (connection.peer, key) in self._forgotten:
            del self._forgotten[connection.peer, key]
            self.loop.call(self._forget, connection.peer, key)
        return self._inlets.pop((connection.peer, key), None)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """Take note of a lost link, or of somebody who was refused."""
        peer = connection.peer
        if connection.through is not None:
            reason = f"through {connection.through}: {reason}"
        self.connections.discard(connection)
        self._relay.closed(connection)
        if self._candidates.get(peer) is connection:
            del self._candidates[peer]
        if self.links.get(peer) is connection:
            del self.links[peer]
            self.missing[peer] = Reach(False, None, reason, connection.unfit)
            self._tell(LinkDown(peer, reason))
            if connection.through is not None and peer in self._pursuits:
                self._pursuits[peer].put_off(connection.through)
            if peer in self._candidates:
                self._choose(self._candidates.pop(peer))
            # also if that one was dead too
            if peer not in self.links and peer in self._pursuits:
                self._pursuits[peer].begin()
        elif not connection.greeted:
            if connection.dialled:
                self.try_failed(peer, reason, unfit=connection.unfit)
            else:
                self.loop.counters["refused: stranger"] += 1
                self._refused("", reason)
                if connection.unfit and peer:
                    self._show_other_key()

    # -- which connection is the link -------------------------------------------------------------------------

    def _count_link(self, peer: str) -> None:
        """Refuse a peer that links again and again: every link costs both sides, and lines in their logs."""
        now = time.monotonic()
        # how many there were lately: each is forgotten after some seconds
        count, since = self._counted.get(peer, (0.0, now))
        count = max(0.0, count - (now - since) / LINK_PAUSE)
        if count >= LINKS_AT_ONCE:
            raise FrameError("it is linked again and again; that takes a moment")
        self._counted[peer] = (count + 1, now)

    def _judge(self, connection: Connection) -> None:
        """Decide, as the peer whose name comes first, whether a connection becomes the link."""
        if connection.closed:
            return
        peer, link = connection.peer, self.links.get(connection.peer)
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

            self.loop.call_later(PROBE, decide)

    def _choose(self, connection: Connection) -> None:
        connection.reply(Kind.LINK)
        if not connection.closed:
            self._link(connection)

    def _link(self, connection: Connection) -> None:
        """Make a connection the link."""
        peer = connection.peer
        old = self.links.get(peer)
        self.links[peer] = connection
        connection.exchange.linked = connection.settled = True
        if old is not None:
            old.close("another connection took its place")
        self.missing.pop(peer, None)
        self._said = {(who, why) for who, why in self._said if who != peer}
        if peer in self._pursuits:
            self._pursuits[peer].linked(connection.through)
        self._tell(LinkUp(peer, connection.through))


def by_name(endpoints: Sequence[Endpoint]) -> Mapping[str, Endpoint]:
    """Return endpoints by their names."""
    return {endpoint.name: endpoint for endpoint in endpoints}
