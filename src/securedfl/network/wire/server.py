"""What a peer's server answers to whom: three methods of raw bytes, and nothing for whoever is not in the roster.

``Control`` takes small questions, ``Data`` a stream of frames (one per attempt and sender), and ``Model`` gives a
stream of bytes to a peer that has to catch up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc
import msgpack

from securedfl.errors import PeerLostError, SecuredFLError
from securedfl.network.wire import tls
from securedfl.network.wire.control import read_control
from securedfl.network.wire.frames import FrameError, Place, unbundle
from securedfl.network.wire.mailbox import Mailbox
from securedfl.network.wire.tls import IdentityError

log = logging.getLogger("securedfl.network")

SERVICE = "/securedfl.Peer/"
CALLS_PER_SECOND = 200.0
STREAMS_PER_PEER = 3


class Served(Protocol):
    """What the server needs of the endpoint that it serves."""

    roster: tuple[tls.Member, ...]
    stopping: threading.Event
    insecure: bool
    answer: Callable[[int, dict[str, Any]], dict[str, Any]]
    models: Callable[[int, dict[str, Any]], Iterator[bytes]]

    def count(self, what: str) -> None:
        """Note something that was refused or dropped."""

    def count_in(self, nbytes: int) -> None:
        """Note bytes that arrived."""

    def await_mailbox(self, place: Place, patience: float) -> tuple[Mailbox, tuple[int, ...]] | None:
        """Return the mailbox of an attempt and its members, or None."""


class Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """What the server answers to whom."""

    def __init__(self, endpoint: Served) -> None:
        self._endpoint = endpoint
        self._buckets = {peer: Bucket(CALLS_PER_SECOND) for peer in range(len(endpoint.roster))}
        self._streams: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._handlers = {
            SERVICE + "Control": grpc.unary_unary_rpc_method_handler(self._control),
            SERVICE + "Data": grpc.stream_unary_rpc_method_handler(self._data),
            SERVICE + "Model": grpc.unary_stream_rpc_method_handler(self._model),
        }

    @property
    def open_streams(self) -> int:
        """How many streams of frames are being read, from all peers."""
        with self._lock:
            return self._streams.total()

    def service(self, details: Any) -> Any:
        """Return the handler of a method; None for one that does not exist."""
        return self._handlers.get(details.method)

    def _caller(self, context: Any, *, limited: bool = True) -> int:
        end = self._endpoint
        try:
            metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
            peer = tls.caller(context.auth_context(), metadata, end.roster, insecure=end.insecure)
        except (IdentityError, ValueError) as error:
            end.count("refused: stranger")
            log.warning("refused a connection: %s", error)
            context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        if limited and not self._buckets[peer].take():
            end.count("refused: too many calls")
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls")
        return peer

    def _control(self, request: bytes, context: Any) -> bytes:
        end = self._endpoint
        peer = self._caller(context)
        try:
            answer = end.answer(peer, read_control(request))
        except FrameError as error:
            end.count("refused: malformed")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        reply: bytes = msgpack.packb(answer)
        return reply

    def _model(self, request: bytes, context: Any) -> Iterator[bytes]:
        peer = self._caller(context)
        try:
            yield from self._endpoint.models(peer, read_control(request))
        except SecuredFLError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))

    def _data(self, requests: Iterator[bytes], context: Any) -> bytes:
        """Take the frames of one attempt from one sender."""
        end = self._endpoint
        sender = self._caller(context)
        mailbox: Mailbox | None = None
        number = -1
        with self._lock:
            self._streams[sender] += 1
            streams = self._streams[sender]
        try:
            if streams > STREAMS_PER_PEER:
                end.count("refused: too many streams")
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
            for frame in (frame for data in requests for frame in unbundle(data)):
                if mailbox is None:
                    found = end.await_mailbox(frame.place, patience=30.0)
                    if found is None or sender not in found[1]:
                        end.count("dropped: another attempt")
                        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not in this attempt")
                        return b""  # abort raises; this is for the reader
                    mailbox, members = found
                    number = members.index(sender)
                    if frame.spec.count == 0:
                        continue
                end.count_in(len(frame.body))
                mailbox.deliver(number, frame)
        except FrameError as error:
            end.count("refused: malformed")
            log.warning("dropped the stream of %s: %s", end.roster[sender].name, error)
            if mailbox is not None:
                mailbox.fail(PeerLostError(f"{end.roster[sender].name} sent bytes that are not a frame"))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except grpc.RpcError:
            pass
        except Exception:
            # gRPC raises a bare Exception when the other side of a request stream is gone
            if mailbox is not None and not end.stopping.is_set():
                mailbox.fail(PeerLostError(f"the connection from {end.roster[sender].name} broke off"))
            raise
        finally:
            with self._lock:
                self._streams[sender] -= 1
        return b""


class Bucket:
    """Lets so many calls per second through, twice as many in a burst."""

    def __init__(self, rate: float) -> None:
        self._rate, self._left, self._at = rate, 2 * rate, time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Tell whether one more call may pass."""
        with self._lock:
            now = time.monotonic()
            self._left = min(2 * self._rate, self._left + (now - self._at) * self._rate)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True
