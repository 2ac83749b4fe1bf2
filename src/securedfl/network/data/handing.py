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
from dataclasses import dataclass, field

from securedfl.errors import PeerLostError
from securedfl.network.core.events import Event, Fetch
from securedfl.network.core.messages import Result, encode
from securedfl.network.data.results import Results
from securedfl.network.letters import Want
from securedfl.network.wire.links import Links

log = logging.getLogger("securedfl.peer")

PAUSE = 1.0
"""Seconds until the holders of a result are asked again."""
LONG = 8
"""Times the patience for a piece that a holder has for the whole result at first, where others have it, too."""


@dataclass
class _Fetching:
    """A result that is being fetched: from whom it may come by now, whether that is over, and who is asked now."""

    wanted: Result
    holders: tuple[str, ...]
    stopped: threading.Event = field(default_factory=threading.Event)
    asked: tuple[str, _Pieces | None] = ("", None)


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
        # whom this peer sends something, and what each of them asked for last
        self._giving: dict[str, Want] = {}
        self._lock = threading.Lock()
        self._fetching: _Fetching | None = None

    def give(self, peer: str, want: Want, patience: float) -> None:
        """Send a peer what it wants; if it is being sent something already, after that."""
        with self._lock:
            busy = peer in self._giving
            self._giving[peer] = want
        if not busy:
            threading.Thread(target=self._give, args=(peer, want, patience), name=f"give-{peer}", daemon=True).start()

    def fetch(self, fetch: Fetch, names: Mapping[int, str], patience: float) -> None:
        """Get a result from its holders, however long it takes; instead of the one that was fetched before."""
        holders = tuple(names[holder] for holder in fetch.holders if holder in names)
        before = self._fetching
        if before is not None and before.wanted == fetch.result and not before.stopped.is_set():
            # what has come of it already is not given up, unless its holder is gone
            before.holders = holders
            asked, inlet = before.asked
            if asked not in holders and inlet is not None:
                inlet.ended("")
            return
        self.stop()
        self._fetching = now = _Fetching(fetch.result, holders)
        threading.Thread(
            target=self._fetch, args=(now, patience), name=f"fetch-{fetch.result.round}", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.stopped.set()

    def _give(self, peer: str, want: Want, patience: float) -> None:
        try:
            while True:
                with suppress(PeerLostError):
                    self._send(peer, want, patience)
                with self._lock:
                    before, want = want, self._giving[peer]
                    if want == before:
                        del self._giving[peer]
                        return
        except BaseException:
            with self._lock:
                self._giving.pop(peer, None)
            raise

    def _send(self, peer: str, want: Want, patience: float) -> None:
        stream = self._links.open(peer, want.key)
        try:
            for piece in self._results.pieces(want.round, want.digest):
                stream.put(b"", piece, patience)
            stream.finish(patience)
        finally:
            if not stream.over:
                stream.cancel()

    def _fetch(self, now: _Fetching, patience: float) -> None:
        wanted, stopped = now.wanted, now.stopped
        try:
            for turn in itertools.count():
                # one that sends a byte now and then must not keep from those that would send all of it
                slow = patience * LONG * 2 ** min(turn, 20)
                for holder in now.holders:
                    if stopped.is_set():
                        return
                    longest = slow if len(now.holders) > 1 else math.inf
                    data = self._ask(holder, now, (patience, longest))
                    if data is None:
                        continue
                    found = self._results.store(wanted.round, wanted.attempt, self._results.vector_of(data))
                    if found == wanted:
                        log.info("round %d: took the result from %s", wanted.round, holder)
                        stopped.set()
                        self._tell(found)
                        return
                    self._results.drop(found)
                    log.warning("round %d: %s sent another result than was agreed", wanted.round, holder)
                stopped.wait(PAUSE)
        except Exception as error:  # whatever it is, nobody else would notice that nothing is fetched any more
            self._tell(error)

    def _ask(self, holder: str, now: _Fetching, patience: tuple[float, float]) -> memoryview | None:
        """Return the bytes that a holder sends; None if they do not come. Patience is for a piece, and for all."""
        inlet, wanted = _Pieces(self._results.nbytes), now.wanted
        now.asked = (holder, inlet)
        # a key of its own, so that what is left of an earlier try is not mistaken for this one
        key = b"result " + secrets.token_bytes(16)
        self._links.accept(holder, key, inlet)
        if self._links.send(holder, encode(Want(wanted.round, wanted.digest, key))):
            inlet.wait(*patience, now.stopped)
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
