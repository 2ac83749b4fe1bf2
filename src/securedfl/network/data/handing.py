"""Handing results on: to peers that ask for one, and from holders if this peer lacks it."""

from __future__ import annotations

import itertools
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from securedfl.errors import PeerLostError
from securedfl.network.core.events import Event, Fetch
from securedfl.network.core.messages import Result, encode
from securedfl.network.data.results import Results
from securedfl.network.letters import Want
from securedfl.network.wire.links import Links

log = logging.getLogger("securedfl.peer")

PAUSE = 1.0
"""Seconds until the holders of a result are asked again."""


class Handing:
    """Gives results to others, one at a time to each, and fetches those that are lacking here.

    Parameters
    ----------
    links, results
        Of this peer.
    tell
        Told the `Result`, or an error of this peer's own, such as a full disk.
    """

    def __init__(self, links: Links, results: Results, tell: Callable[[Event | BaseException], None]) -> None:
        self._links, self._results, self._tell = links, results, tell
        self._giving: set[str] = set()
        self._lock = threading.Lock()
        self._stopped: threading.Event | None = None

    def give(self, peer: str, want: Want, patience: float) -> None:
        """Send a peer what it wants, unless it is being sent something already."""
        with self._lock:
            if peer in self._giving:
                return
            self._giving.add(peer)
        threading.Thread(target=self._give, args=(peer, want, patience), name=f"give-{peer}", daemon=True).start()

    def fetch(self, fetch: Fetch, names: Mapping[int, str], patience: float) -> None:
        """Get a result from its holders, however long it takes; instead of the one that was fetched before."""
        self.stop()
        self._stopped = threading.Event()
        target, arguments = self._fetch, (fetch, dict(names), patience, self._stopped)
        threading.Thread(target=target, args=arguments, name=f"fetch-{fetch.result.round}", daemon=True).start()

    def stop(self) -> None:
        """Stop fetching."""
        if self._stopped is not None:
            self._stopped.set()

    def _give(self, peer: str, want: Want, patience: float) -> None:
        try:
            with suppress(PeerLostError):
                stream = self._links.open(peer, want.key)
                try:
                    for piece in self._results.pieces(want.round, want.digest):
                        stream.put(b"", piece, patience)
                    stream.finish(patience)
                finally:
                    if not stream.over:
                        stream.cancel()
        finally:
            with self._lock:
                self._giving.discard(peer)

    def _fetch(self, fetch: Fetch, names: Mapping[int, str], patience: float, stopped: threading.Event) -> None:
        wanted = fetch.result
        try:
            for turn in itertools.count():
                # one that sends a byte now and then must not keep from those that would send all of it
                longest = patience * 2 ** min(turn, 20) if len(fetch.holders) > 1 else math.inf
                for holder in fetch.holders:
                    if stopped.is_set():
                        return
                    data = self._ask(names[holder], wanted, (patience, longest), stopped) if holder in names else None
                    if data is None:
                        continue
                    found = self._results.store(wanted.round, wanted.attempt, self._results.vector_of(data))
                    if found == wanted:
                        log.info("round %d: took the result from %s", wanted.round, names[holder])
                        self._tell(found)
                        return
                    self._results.drop(found)
                    log.warning("round %d: %s sent another result than was agreed", wanted.round, names[holder])
                stopped.wait(PAUSE)
        except Exception as error:  # whatever it is, nobody else would notice that nothing is fetched any more
            self._tell(error)

    def _ask(
        self, holder: str, wanted: Result, patience: tuple[float, float], stopped: threading.Event
    ) -> memoryview | None:
        """Return the bytes that a holder sends; None if they do not come. Patience is for a piece, and for all."""
        inlet = _Pieces(self._results.nbytes)
        # a key of its own, so that what is left of an earlier try is not mistaken for this one
        key = b"result " + secrets.token_bytes(16)
        self._links.accept(holder, key, inlet)
        if self._links.send(holder, encode(Want(wanted.round, wanted.digest, key))):
            inlet.wait(*patience, stopped)
        self._links.forget(holder, key)
        return inlet.data if inlet.complete else None


class _Pieces:
    """The inlet of a result of known length that comes in pieces."""

    def __init__(self, nbytes: int) -> None:
        self.data = memoryview(bytearray(nbytes))
        self._filled = self._given = 0
        self._over = False
        self._changed = threading.Condition()

    @property
    def complete(self) -> bool:
        """Whether all of it is here."""
        return self._filled == len(self.data)

    def begin(self, _head: bytes, nbytes: int) -> memoryview | None:
        """Give memory for the next piece, if there is so much left."""
        if self._given + nbytes > len(self.data):
            return None
        self._given += nbytes
        return self.data[self._given - nbytes : self._given]

    def arrived(self, _head: bytes, body: memoryview) -> None:
        """Count a piece that is here."""
        with self._changed:
            self._filled += len(body)
            self._changed.notify_all()

    def ended(self, _reason: str) -> None:
        """Wake whoever waits."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def wait(self, patience: float, longest: float, stopped: threading.Event) -> None:
        """Wait until it is over, or no piece came for so many seconds, or not all of it in the longest time."""
        deadline, before, end = time.monotonic() + patience, 0, time.monotonic() + longest
        with self._changed:
            while not self._over and not stopped.is_set() and time.monotonic() < min(deadline, end):
                self._changed.wait(min(1.0, patience))
                if self._filled > before:
                    deadline, before = time.monotonic() + patience, self._filled
