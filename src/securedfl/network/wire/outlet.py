"""Outlets: the frames of one attempt on their way to one peer, through one gRPC stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np

from securedfl.errors import PeerLostError
from securedfl.network.wire.frames import Place, bundle
from securedfl.network.wire.mailbox import Mailbox

QUEUED_BUNDLES = 2
BUNDLE_BYTES = 1 << 20
"""Messages wait for each other until they are as long as that together, or until they are needed: a gRPC message costs
more than its bytes."""

_NOTHING = np.empty(0, dtype=np.float32)


class StreamOutlet:
    """Sends the frames of one attempt to one peer through one gRPC stream.

    Parameters
    ----------
    name
        Of the receiver, for errors.
    place, mailbox
        The attempt; if the stream breaks off, its mailbox fails.
    method, metadata
        The gRPC method to call, and what to tell about this peer.
    sent
        Told the bytes of messages that left.
    """

    def __init__(
        self,
        name: str,
        place: Place,
        mailbox: Mailbox,
        method: Any,
        *,
        metadata: Any,
        sent: Callable[[int], None],
    ) -> None:
        self._name, self._mailbox, self._sent = name, mailbox, sent
        self._queue: queue.Queue[list[tuple[Place, Any]] | None] = queue.Queue(QUEUED_BUNDLES)
        self._waiting: list[tuple[Place, Any]] = []
        self._waiting_bytes = 0
        self._ended = threading.Event()
        # an empty frame opens the stream, so that the receiver knows the attempt before anything else arrives
        self._call = method.future(self._bundles(place), metadata=metadata)
        self._call.add_done_callback(self._on_done)

    def put(self, place: Place, message: Any) -> None:
        """Send a message, perhaps with the next ones; blocks while too many wait, raises if the attempt has ended."""
        self._mailbox.check()
        self._waiting.append((place, message))
        self._waiting_bytes += message.nbytes
        if self._waiting_bytes >= BUNDLE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what was put."""
        items, self._waiting, self._waiting_bytes = self._waiting, [], 0
        while items:
            try:
                self._queue.put(items, timeout=0.2)
                return
            except queue.Full:
                self._mailbox.check()

    def finish(self, timeout: float) -> None:
        """Wait until the receiver has confirmed all frames."""
        self.flush()
        self._queue.put(None)
        name = self._name
        try:
            self._call.result(timeout=timeout)
        except grpc.FutureTimeoutError:
            self.cancel()
            raise PeerLostError(f"{name} did not confirm what it was sent within {timeout:.0f} s") from None
        except (grpc.RpcError, grpc.FutureCancelledError):
            raise PeerLostError(f"the connection to {name} broke off") from None

    def cancel(self) -> None:
        """Give up what has not been sent."""
        self._ended.set()
        self._call.cancel()

    def _bundles(self, place: Place) -> Iterator[bytes]:
        """Give gRPC what waits in the queue."""
        yield bundle([(place, _NOTHING)])
        while not self._ended.is_set():
            try:
                items = self._queue.get(timeout=0.5)
            except queue.Empty:
                continue
            if items is None:
                return
            yield bundle(items)
            self._sent(sum(message.nbytes for _, message in items))

    def _on_done(self, call: Any) -> None:
        self._ended.set()
        if not call.cancelled() and call.code() != grpc.StatusCode.OK:
            self._mailbox.fail(PeerLostError(f"the connection to {self._name} broke off"))
