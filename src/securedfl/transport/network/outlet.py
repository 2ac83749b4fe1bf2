"""Outlets: the frames of one attempt on their way to one peer, through one gRPC stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np

from securedfl.errors import PeerLostError
from securedfl.transport.network.frames import Place, bundle
from securedfl.transport.network.mailbox import Mailbox

QUEUED_FRAMES = 3
BUNDLE_BYTES = 1 << 20
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
        self._queue: queue.Queue[Any] = queue.Queue(QUEUED_FRAMES)
        self._ended = threading.Event()
        # an empty frame opens the stream, so that the receiver knows the attempt before anything else arrives
        self._call = method.future(self._bundles(place), metadata=metadata)
        self._call.add_done_callback(self._on_done)

    def put(self, place: Place, message: Any) -> None:
        """Queue a message; blocks while the queue is full, raises if the attempt has ended."""
        while True:
            self._mailbox.check()
            try:
                self._queue.put((place, message), timeout=0.2)
                return
            except queue.Full:
                continue

    def finish(self, timeout: float) -> None:
        """Wait until the receiver has confirmed all frames."""
        self._queue.put((None, _NOTHING))
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
        """Give gRPC what waits in the queue, as few messages as possible."""
        yield bundle([(place, _NOTHING)])
        done = False
        while not done and not self._ended.is_set():
            try:
                items = [self._queue.get(timeout=0.5)]
            except queue.Empty:
                continue
            while not self._queue.empty() and sum(item[1].nbytes for item in items) < BUNDLE_BYTES:
                items.append(self._queue.get())
            done = items[-1][0] is None
            items = items[:-1] if done else items
            if items:
                yield bundle(items)
                self._sent(sum(message.nbytes for _, message in items))

    def _on_done(self, call: Any) -> None:
        self._ended.set()
        if not call.cancelled() and call.code() != grpc.StatusCode.OK:
            self._mailbox.fail(PeerLostError(f"the connection to {self._name} broke off"))
