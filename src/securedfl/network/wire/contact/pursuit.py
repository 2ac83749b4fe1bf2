"""Pursuits: how a peer gets linked. It is dialled directly; where that fails, both wait for each other at relays."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from securedfl.errors import ConfigError, SecuredFLError
from securedfl.network.wire.connection import Connection, Handler
from securedfl.network.wire.contact.dial import dial
from securedfl.network.wire.frames import Kind
from securedfl.network.wire.identity import Identity, require
from securedfl.network.wire.loop import Loop
from securedfl.network.wire.values import Endpoint, FrameError, IdentityError, Limits, Reach

FIRST_PAUSE, LONGEST_PAUSE, RELAYED_PAUSE = 0.2, 5.0, 60.0
"""Seconds between tries: they double, with jitter; a peer that is linked through a relay is dialled now and then."""
POLITENESS = 0.5
"""Seconds by which the peer whose name comes later lets the other one dial first."""
TURNS_BEFORE_RELAYS = 4
"""Tries, about three seconds of them, that a peer that can be dialled has to answer before relays are asked."""
RELAYS_AT_ONCE = 3
REFUSAL = 2.0
"""Seconds in which one who does not join two peers says so."""
RELAY_WAIT = 20.0
"""Seconds to wait at a relay before another one is tried instead, and that it has to wait then if there are others."""


class Home(Handler):
    """What pursuits know of the peer that they are of, and where a connection to another peer goes on."""

    me: str
    loop: Loop
    identity: Identity
    limits: Limits
    proxy: str | None
    roster: Mapping[str, Endpoint]
    relays: Mapping[str, Endpoint]
    connections: set[Connection]
    links: dict[str, Connection]
    missing: dict[str, Reach]

    @abstractmethod
    def try_failed(self, peer: str, reason: str, *, unfit: bool) -> None:
        """Learn why a peer was not reached, or that it, or what it was reached with, does not fit."""


class Pursuit(Handler):
    """Tries to link one peer, until it is linked or stopped; for the I/O thread.

    Parameters
    ----------
    home
        This peer and its connections.
    peer
        Whom to link.
    """

    def __init__(self, home: Home, peer: str) -> None:
        self._home, self._peer = home, peer
        self._tries: dict[str, asyncio.Task[None] | Connection] = {}
        self._put_off: dict[str, float] = {}
        # where this side waits for the peer, or could when it came there last; and what was said of one where not
        self._waits: set[str] = set()
        self._blamed = ""
        self._turns = 0
        self._relayed = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin, or begin again after a link was lost."""
        self.stop()
        self._turns, self._relayed = 0, False
        self._waits.clear()
        polite = self._peer < self._home.me and self._home.roster[self._peer].listens
        self._timer = self._home.loop.call_later(POLITENESS * polite, self._turn)

    def stop(self) -> None:
        """Give up all tries."""
        if self._timer is not None:
            self._timer.cancel()
        for key in list(self._tries):
            self._drop(key)

    def linked(self, through: str | None) -> None:
        """Learn that the peer is linked; if through a relay, go on looking for a direct way, slowly."""
        self.stop()
        self._relayed = through is not None
        if self._relayed and self._home.roster[self._peer].listens:
            self._timer = self._home.loop.call_later(RELAYED_PAUSE * random.uniform(0.5, 1.5), self._turn)

    def put_off(self, relay: str) -> None:
        """Let a relay that had its turn, or whose link was lost, wait until others had theirs."""
        self._put_off[relay] = time.monotonic()

    def _turn(self) -> None:
        home, peer = self._home, self._home.roster[self._peer]
        pause = RELAYED_PAUSE if self._relayed else min(FIRST_PAUSE * 2**self._turns, LONGEST_PAUSE)
        self._turns = min(self._turns + 1, 16)
        self._timer = home.loop.call_later(pause * random.uniform(0.5, 1.5), self._turn)
        direct = self._tries.get("")
        if peer.listens and (direct is None or (isinstance(direct, Connection) and direct.closed)):
            self._begin_to_dial("", peer)
        if not self._relayed and (not peer.listens or self._turns > TURNS_BEFORE_RELAYS):
            self._wait_at_relays()

    def _wait_at_relays(self) -> None:
        """Wait at a few relays; where nobody came for long, let another one have its place."""
        now = time.monotonic()
        for key, found in list(self._tries.items()):
            if not key or not isinstance(found, Connection):
                continue
            if found.settled and now - found.began > REFUSAL:
                self._may_wait(key)
            if now - found.began > RELAY_WAIT:
                self.put_off(key)
                self._drop(key)
        for relay in self._candidates():
            if len(self._tries.keys() - {""}) < RELAYS_AT_ONCE and relay.name not in self._tries:
                self._begin_to_dial(relay.name, relay)

    def _may_wait(self, third: str) -> None:
        """Take note that one who joins the two was reached: it is the peer that has not come, whatever was before."""
        self._waits.add(third)
        known = self._home.missing.get(self._peer)
        if known is not None and known.reason == self._blamed:
            del self._home.missing[self._peer]

    def _candidates(self) -> Sequence[Endpoint]:
        """Return who may join the two: both ends order them alike; whoever was put off waits for others."""
        home, now = self._home, time.monotonic()
        pair = "\0".join(sorted((home.me, self._peer)))
        thirds = [third for third in home.roster.values() if third.listens and third.name not in (home.me, self._peer)]

        def order(relay: Endpoint) -> tuple[float, bool, bool, bytes]:
            mixed = hashlib.sha256(f"{pair}\0{relay.name}".encode()).digest()
            named = relay.name in home.relays
            return self._put_off.get(relay.name, 0.0), not named, not named and relay.name not in home.links, mixed

        found = sorted([*home.relays.values(), *thirds], key=order)
        return [one for one in found if now - self._put_off.get(one.name, -RELAY_WAIT) >= RELAY_WAIT] or found

    @property
    def awaited(self) -> str:
        """What this side waits for while nothing has failed; for any thread."""
        home, roster = self._home, self._home.roster
        peer, me = roster.get(self._peer), roster.get(home.me)
        if peer is None or me is None or peer.listens:
            return "not yet"
        if me.listens:
            return f"it only dials out, and has not come yet: start it there, and see that it reaches {me.address}"
        thirds = [*home.relays, *(third.name for third in roster.values() if third.listens)]
        if not thirds:
            return (
                "both sites only dial out, and nobody can join them: name a relay in federation.toml of all sites "
                "([[relays]])"
            )
        return (
            "both sites only dial out, and it has not come yet to one who joins them "
            f"({', '.join(thirds)}): start it there, and see that it reaches one of these, as this site must"
        )

    def _begin_to_dial(self, key: str, endpoint: Endpoint) -> None:
        self._tries[key] = self._home.loop.create_task(self._dial(key, endpoint))

    async def _dial(self, key: str, endpoint: Endpoint) -> None:
        """Dial the peer itself (an empty key), or a relay."""
        home = self._home
        try:
            tls, handler = home.identity.dialling(endpoint.name), self if key else home
            sock, rest = await dial(endpoint.host, endpoint.port, proxy=home.proxy, timeout=home.limits.handshake)
        except (SecuredFLError, OSError, ValueError) as error:
            # whatever it is: a try that is not over would be the last one
            self._failed(key, str(error), unfit=isinstance(error, ConfigError))
            return
        connection = Connection(home.loop, sock, tls, home.limits, handler, peer=endpoint.name, dialled=not key)
        self._tries[key] = connection
        home.connections.add(connection)
        connection.start(rest)

    def _drop(self, key: str) -> None:
        found = self._tries.pop(key)
        if isinstance(found, asyncio.Task):
            found.cancel()
        elif key:
            found.close("no longer needed")

    def _failed(self, key: str, reason: str, *, unfit: bool) -> None:
        self._tries.pop(key, None)
        if not key:
            self._home.try_failed(self._peer, reason, unfit=unfit)
            return
        self.put_off(key)
        self._waits.discard(key)
        # of a peer that can be dialled, what is wrong with that is what people should mend; and where another one may
        # join the two, nothing is wrong with this side
        if not self._home.roster[self._peer].listens and (unfit or not self._waits):
            third = f"the relay {key}" if key in self._home.relays else key
            self._blamed = f"it only dials out, and {third} does not join the two: {reason}"
            self._home.try_failed(self._peer, self._blamed, unfit=unfit)

    def _third(self, name: str) -> Endpoint | None:
        """Return a relay, or a peer that joins two others."""
        return self._home.relays.get(name) or self._home.roster.get(name)

    # -- connections to relays --------------------------------------------------------------------------------

    def on_secured(self, connection: Connection) -> None:
        """Ask a relay for the peer, if it is the relay that it should be."""
        relay = self._third(connection.peer)
        if relay is None:
            raise IdentityError(f"{connection.peer} is not a relay any more")
        require(connection.certificate, relay)
        connection.settled = True
        connection.reply(Kind.JOIN, bytes.fromhex(self._home.roster[self._peer].fingerprint))

    def on_frame(self, connection: Connection, kind: Kind, _payload: bytes) -> None:
        """Go on with the peer itself, once the relay has joined the two."""
        if kind is not Kind.JOINED:
            raise FrameError("a relay that does not answer as one")
        home, peer = self._home, self._peer
        self._tries.pop(connection.peer, None)
        # one that says so and joins nobody must not come first again
        self.put_off(connection.peer)
        sock, rest = connection.detach()
        first = home.me < peer
        tls = home.identity.dialling(peer) if first else home.identity.accepting()
        inner = Connection(
            home.loop,
            sock,
            tls,
            home.limits,
            home,
            peer=peer,
            through=connection.peer,
            dialled=first,
        )
        home.connections.add(inner)
        inner.start(rest)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """Learn that a relay is gone, or does not want to join the two."""
        if self._tries.get(connection.peer) is connection:
            third = self._third(connection.peer)
            where = f"{third.address}: " if third is not None else ""
            self._failed(connection.peer, where + reason, unfit=connection.unfit)
