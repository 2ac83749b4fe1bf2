"""Links: the network of one peer. One connection per other peer, whoever opened it, used in both directions.

The methods of `Links` may be called from any thread; what they ask for is done in the I/O thread (`hub`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from securedfl.errors import PeerLostError
from securedfl.network.wire.hub import Hub
from securedfl.network.wire.identity import Identity
from securedfl.network.wire.keys import KeyFiles
from securedfl.network.wire.streams import Outgoing
from securedfl.network.wire.values import Endpoint, Inlet, Reach


class Links(Hub):
    """The links of one peer. All methods may be called from any thread.

    Parameters
    ----------
    me
        This peer's name in the roster.
    files
        Its key, its certificate, and the federation's authority.
    roster
        All peers, this one included. An `Endpoint` without a host cannot be dialled.
    on_event
        Told every event, in the I/O thread: it must be quick, for instance the ``put`` of a queue.
    listen
        ``HOST:PORT``; None only dials out.
    relays
        Named relays. Besides them any listening peer of the roster joins two others.
    proxy
        ``http://HOST:PORT`` of an HTTP CONNECT proxy; None takes what HTTPS_PROXY says, an empty text none.
    idle
        Seconds of silence after which a link is lost. Links speak at least three times as often.
    limits
        How much others may ask for.
    """

    @property
    def counters(self) -> Counter[str]:
        """What was refused or dropped, by kind."""
        return self.loop.counters

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent by all links so far, TLS included."""
        return self.loop.bytes_in, self.loop.bytes_out

    def send(self, peer: str, data: bytes) -> bool:
        """Send a control message of at most 1 MiB; False if there is no link or too much waits. It may get lost."""
        link = self.links.get(peer)
        if link is None or not link.exchange.send(data):
            return False
        self.loop.call(link.flush)
        return True

    def open(self, peer: str, key: bytes) -> Outgoing:
        """Open a bulk stream to a peer, under a key of at most 512 bytes; `PeerLostError` if there is no link."""
        link = self.links.get(peer)
        if link is None:
            raise PeerLostError(f"there is no link to {peer}: {self._why_not(peer).reason}")

        def wake(stream: Outgoing) -> None:
            self.loop.call(self._send_stream, link, stream)

        stream = Outgoing(peer, key, self.limits.queue, wake)
        wake(stream)
        return stream

    def accept(self, peer: str, key: bytes, inlet: Inlet) -> None:
        """Take the bulk stream that a peer has opened or will open under a key."""
        self.loop.call(self._accept, peer, key, inlet)

    def forget(self, peer: str, key: bytes) -> None:
        """Take the stream of a key no more; its sender is told. Its inlet is not called again once this returns."""
        done = threading.Event()
        self.loop.call(self._forget, peer, key)
        if self.loop.call(done.set):
            done.wait(5)

    def reaches(self) -> dict[str, Reach]:
        """Return for every other peer whether it is linked, and how, or why not."""
        links, others = dict(self.links), (peer for peer in self.roster if peer != self.me)
        return {peer: Reach(True, links[peer].through) if peer in links else self._why_not(peer) for peer in others}

    def _why_not(self, peer: str) -> Reach:
        """Return why there is no link to a peer yet."""
        pursuit = self._pursuits.get(peer)
        return self.missing.get(peer) or Reach(False, None, pursuit.awaited if pursuit else "not yet")

    def update(self, *, roster: Sequence[Endpoint] | None = None, files: KeyFiles | None = None) -> None:
        """Take another roster or a renewed key while running; links that do not fit are dropped."""
        self.loop.call(self._update, roster, Identity(files, self.me) if files else None)

    def close(self) -> None:
        """Hang up on everybody and stop; no more events."""
        self._tell = lambda _event: None
        self.loop.call(self._end)
        self.loop.end()
