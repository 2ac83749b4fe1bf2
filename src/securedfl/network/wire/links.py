"""Links: the network of one peer. One connection per other peer, whoever opened it, used in both directions.

The methods of `Links` may be called from any thread; what they ask for is done by the `Hub`, in the I/O thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from securedfl.errors import ConfigError, PeerLostError
from securedfl.network.wire.contact.door import Door
from securedfl.network.wire.hub import Hub
from securedfl.network.wire.identity import Identity
from securedfl.network.wire.keys import KeyFiles
from securedfl.network.wire.loop import Loop
from securedfl.network.wire.streams import Outgoing
from securedfl.network.wire.values import Endpoint, Event, Inlet, Limits, Reach


class Links:
    """The links of one peer. All methods may be called from any thread.

    Parameters
    ----------
    me
        This peer's name in the roster.
    files
        Its key, its certificate, and the federation's authority.
    roster
        All peers, this one included. A `Endpoint` without a host cannot be dialled.
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
        roster: Sequence[Endpoint],
        *,
        on_event: Callable[[Event], None],
        listen: str | None = None,
        relays: Sequence[Endpoint] = (),
        proxy: str | None = None,
        idle: float = 10.0,
        limits: Limits | None = None,
    ) -> None:
        names, identity, limits = [peer.name for peer in roster], _identity(me, files), limits or Limits()
        if me not in names:
            raise ConfigError(f"{me!r} is not in the roster; it lists {', '.join(names)}")
        door = Door(listen, limits) if listen else None
        self._loop = Loop(me)
        self.counters = self._loop.counters
        self._hub = Hub(
            self._loop,
            me,
            identity,
            roster,
            relays,
            door=door,
            proxy=proxy,
            limits=limits,
            idle=idle,
            tell=on_event,
        )
        self._loop.call(self._hub.begin)

    @property
    def address(self) -> str | None:
        """Where it listens, if it does."""
        return self._hub.door.address if self._hub.door else None

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent by all links so far, TLS included."""
        return self._loop.bytes_in, self._loop.bytes_out

    def send(self, peer: str, data: bytes) -> bool:
        """Send a control message of at most 1 MiB; False if there is no link or too much waits. It may get lost."""
        link = self._hub.links.get(peer)
        if link is None or not link.exchange.send(data):
            return False
        self._loop.call(link.flush)
        return True

    def open(self, peer: str, key: bytes) -> Outgoing:
        """Open a bulk stream to a peer, under a key of at most 512 bytes; `PeerLostError` if there is no link."""
        link = self._hub.links.get(peer)
        if link is None:
            raise PeerLostError(f"there is no link to {peer}: {self._hub.reasons.get(peer, 'not yet')}")

        def wake(stream: Outgoing) -> None:
            self._loop.call(self._hub.send_stream, link, stream)

        stream = Outgoing(peer, key, self._hub.limits.queue, wake)
        wake(stream)
        return stream

    def accept(self, peer: str, key: bytes, inlet: Inlet) -> None:
        """Take the bulk stream that a peer has opened or will open under a key."""
        self._loop.call(self._hub.accept, peer, key, inlet)

    def forget(self, peer: str, key: bytes) -> None:
        """Take the stream of a key no more; its sender is told. Its inlet is not called again once this returns."""
        done = threading.Event()
        self._loop.call(self._hub.forget, peer, key)
        self._loop.call(done.set)
        done.wait(5)

    def reaches(self) -> dict[str, Reach]:
        """Return for every other peer whether it is linked, and how, or why not."""
        found = {}
        for peer in self._hub.roster:
            link = self._hub.links.get(peer)
            if link is not None:
                found[peer] = Reach(True, link.through)
            elif peer != self._hub.me:
                found[peer] = Reach(False, None, self._hub.reasons.get(peer, "not yet"))
        return found

    def update(
        self,
        *,
        roster: Sequence[Endpoint] | None = None,
        relays: Sequence[Endpoint] | None = None,
        files: KeyFiles | None = None,
    ) -> None:
        """Take another roster, other relays or a renewed key while running; links that do not fit are dropped."""
        identity = _identity(self._hub.me, files) if files else None
        self._loop.call(self._hub.update, roster, relays, identity)

    def close(self) -> None:
        """Hang up on everybody and stop; no more events."""
        self._hub.tell = lambda _event: None
        self._loop.call(self._hub.end)
        self._loop.end()


def _identity(me: str, files: KeyFiles) -> Identity:
    identity = Identity(files)
    if identity.name != me:
        raise ConfigError(f"{files.certificate} is the certificate of {identity.name!r} and not of {me!r}")
    return identity
