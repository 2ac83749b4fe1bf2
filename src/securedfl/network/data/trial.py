"""One attempt seen from one member: the protocol in a thread of its own, over one stream to and from each other member.

The log says what to do: share; then open, or finish without those that were lost; or stop. What comes of it is told as
events of the core.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from securedfl.errors import PeerLostError
from securedfl.network.core import events as ev
from securedfl.network.core.entries import Try
from securedfl.network.core.messages import Failure, Result
from securedfl.network.data.driver import LocalAttempt, Procedure
from securedfl.network.data.mailbox import Mailbox, StalledError
from securedfl.network.data.memory import HEAP
from securedfl.network.data.parcels import Position
from securedfl.network.wire.links import Links
from securedfl.network.wire.streams import Outgoing
from securedfl.protocols.steps import Array

log = logging.getLogger("securedfl.peer")


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an attempt is about.

    Attributes
    ----------
    place, members
        Run, round and attempt; and the names of the members by number, in order.
    recipe
        What to run.
    vector
        This peer's parameters.
    patience, grace, ready
        Seconds without progress; seconds in which the core notices by itself who is lost; and who is ready now, so that
        its messages can be waited for.
    store
        Makes a result of a mean and keeps it.
    """

    place: Position
    members: Mapping[int, str]
    recipe: Procedure
    vector: Array
    patience: float
    grace: float
    ready: Callable[[], Collection[int]]
    store: Callable[[Array], Result]


@dataclass(frozen=True)
class _Streams:
    """The streams of one part of an attempt."""

    key: bytes
    mailbox: Mailbox
    peers: Collection[str]
    outgoing: dict[int, Outgoing] = field(default_factory=dict)


class Trial(threading.Thread):
    """One attempt; start it, then give orders.

    Parameters
    ----------
    links
        The network.
    work
        What it is about.
    tell
        Told `Shared`, the `Result` and `Failure`, or an error of this peer's own, after which it cannot go on.
    """

    def __init__(self, links: Links, work: Work, tell: Callable[[ev.Event | BaseException], None]) -> None:
        super().__init__(name=f"securedfl-round-{work.place.round}", daemon=True)
        self._links, self._work, self._tell = links, work, tell
        self._numbers = numbers = tuple(work.members)
        self._orders: queue.SimpleQueue[tuple[int, ...] | None] = queue.SimpleQueue()
        self._streams: _Streams | None = None
        self._done = self._stopped = False
        self._failed: tuple[Failure, str] | None = None
        # no method of this object: each would hold the other, and memory would wait for the garbage collector
        self._job = LocalAttempt(
            work.recipe,
            work.vector,
            patience=work.patience,
            excused=lambda missing: not any(numbers[k] in work.ready() for k in missing),
        )

    def finish(self, lost: tuple[int, ...] = ()) -> None:
        """Open the sums; again, without those that were lost, if need be."""
        self._orders.put(lost)
        if lost:
            self._interrupt()

    def stop(self) -> None:
        """Give up; what others still need of an attempt that ended well is sent all the same."""
        self._stopped = True
        self._orders.put(None)
        if self._done:
            self._job.forget()
        else:
            self._interrupt()

    def link_lost(self, peer: int, reason: str) -> None:
        """Learn that the streams to and from a peer broke off."""
        streams = self._streams
        if streams is not None and peer in self._numbers and not self._done:
            streams.mailbox.fail(StalledError(frozenset({self._numbers.index(peer)}), reason))

    def run(self) -> None:
        """Share, then do as ordered."""
        try:
            shared = self._part(None)
            while (lost := self._order()) is not None:
                if shared and self._orders.empty():
                    self._part(lost)
        except BaseException as error:
            if not self._stopped:
                self._tell(error)
        finally:
            self._hang_up()
            self._job.forget()
            HEAP.average_ended()

    def _order(self) -> tuple[int, ...] | None:
        """Wait for the next order; if that takes long, tell what failed.

        Whoever is really lost, the core notices by itself, and it is better not to blame the wrong one before.
        """
        failed, self._failed = self._failed, None
        if failed is not None:
            failure, why = failed
            try:
                return self._orders.get(timeout=self._work.grace)
            except queue.Empty:
                log.warning("round %d: attempt %d makes no progress: %s", failure.round, failure.attempt, why)
                self._tell(failure)
        return self._orders.get()

    def _part(self, lost: tuple[int, ...] | None) -> bool:
        """Run the first part (None), or the second one without the lost; return whether it went well."""
        work, place = self._work, self._work.place
        try:
            if lost is None or lost:
                self._hang_up()
                self._connect(lost or ())
            if lost is None:
                self._job.share()
            if lost is not None or not work.recipe.commit_step:
                self._keep(self._places(lost or ()))
                self._see_off()
            else:
                self._tell(ev.Shared(Try(place.round, place.attempt)))
        except PeerLostError as error:
            if self._orders.empty():
                self._failed = self._blame(error, lost)
            return False
        return True

    def _keep(self, lost: frozenset[int]) -> None:
        """Finish, and keep the result."""
        mean = self._job.finish(lost)
        result = self._work.store(mean)
        self._done = True
        self._tell(result)

    def _blame(self, error: PeerLostError, lost: tuple[int, ...] | None) -> tuple[Failure, str]:
        """Return what failed, and why in words."""
        work, place = self._work, self._work.place
        peers = tuple(sorted(self._numbers[k] for k in error.peers)) if isinstance(error, StalledError) else ()
        if lost is None:
            ready = work.ready()
            peers = tuple(peer for peer in peers if peer in ready) or peers
        names = ", ".join(work.members[peer] for peer in peers)
        why = f"{names}: {error}" if names else str(error)
        return Failure(place.round, place.attempt, lost or (), peers), why

    def _places(self, peers: Collection[int]) -> frozenset[int]:
        return frozenset(self._numbers.index(peer) for peer in peers)

    def _connect(self, lost: tuple[int, ...]) -> None:
        """Open a mailbox, and streams to everybody who takes part."""
        work, place, gone = self._work, self._work.place, self._places(lost)
        key = blake2b(repr((place.run, place.round, place.attempt, lost)).encode(), digest_size=24).digest()
        others = {k: name for k, name in enumerate(work.members.values()) if k not in (work.recipe.me, *gone)}
        mailbox = Mailbox(place, work.recipe.routes(gone))
        self._streams = streams = _Streams(key, mailbox, others.values())
        if not self._orders.empty():
            raise PeerLostError("there are new orders")
        for k, peer in others.items():
            self._links.accept(peer, key, _Delivery(mailbox, k))
        for k, peer in others.items():
            try:
                streams.outgoing[k] = self._links.open(peer, key)
            except PeerLostError as error:
                raise StalledError(frozenset({k}), str(error)) from None
        self._job.connect(mailbox, streams.outgoing)

    def _interrupt(self) -> None:
        if (streams := self._streams) is not None:
            streams.mailbox.fail(PeerLostError("there are new orders"))
            for stream in list(streams.outgoing.values()):
                stream.cancel()

    def _see_off(self) -> None:
        """Wait until the others have what they were sent, or want it no more."""
        streams = self._streams
        for stream in streams.outgoing.values() if streams else ():
            with suppress(PeerLostError):
                stream.finish(self._work.patience)

    def _hang_up(self) -> None:
        streams, self._streams = self._streams, None
        if streams is None:
            return
        for stream in streams.outgoing.values():
            if not stream.over:
                stream.cancel()
        for peer in streams.peers:
            self._links.forget(peer, streams.key)


class _Delivery:
    """The inlet that fills a mailbox with what one member sends."""

    def __init__(self, mailbox: Mailbox, sender: int) -> None:
        self._mailbox, self._sender = mailbox, sender

    def begin(self, head: bytes, nbytes: int) -> memoryview | None:
        """Give memory for messages that the routes announce."""
        return np.empty(nbytes, np.uint8).data if self._mailbox.expects(self._sender, head, nbytes) else None

    def arrived(self, head: bytes, body: memoryview) -> None:
        """Put a message into the mailbox."""
        self._mailbox.deliver(self._sender, head, body)

    def ended(self, reason: str) -> None:
        """Fail the attempt if the sender stopped too early."""
        if self._mailbox.lacks(self._sender):
            self._mailbox.fail(StalledError(frozenset({self._sender}), reason or "it ended too early"))
