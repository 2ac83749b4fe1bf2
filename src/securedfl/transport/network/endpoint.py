"""An endpoint: one peer's gRPC server and its connections to all others.

Three methods, all of raw bytes: ``Control`` (small questions and answers), ``Data`` (a stream of frames, one per
attempt and sender) and ``Model`` (a stream of bytes for a peer that has to catch up). Whoever is not in the roster gets
nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import msgpack
import numpy as np

from securedfl.errors import ConfigError, PeerLostError, SecuredFLError
from securedfl.transport.network import tls
from securedfl.transport.network.certificates import KeyFiles
from securedfl.transport.network.frames import FrameError, Place, bundle, unbundle
from securedfl.transport.network.mailbox import Mailbox
from securedfl.transport.network.tls import IdentityError, Member

log = logging.getLogger("securedfl.network")

SERVICE = "/securedfl.Peer/"
MAX_CONTROL = 1 << 16
CALLS_PER_SECOND = 200.0
QUEUED_FRAMES = 3
BUNDLE_BYTES = 1 << 20
_NOTHING = np.empty(0, dtype=np.float32)
Answer = Callable[[int, dict[str, Any]], dict[str, Any]]
Models = Callable[[int, dict[str, Any]], Iterator[bytes]]


class Endpoint:
    """The network of one peer.

    Parameters
    ----------
    roster, me
        All peers, and which of them this is.
    files
        Key and certificates; None only together with ``insecure``.
    listen
        Host and port to listen at; by default those of the roster.
    insecure
        Plain text without identities. Refused unless every address is this very machine.
    max_message
        The longest frame, in bytes.
    serve
        Whether to listen at all, rather than only to call.
    answer, models
        What to reply to control messages, and the bytes of a model that another peer asks for.
    """

    def __init__(
        self,
        roster: Sequence[Member],
        me: int,
        files: KeyFiles | None,
        *,
        listen: str | None = None,
        insecure: bool = False,
        max_message: int = 16 << 20,
        serve: bool = True,
        answer: Answer | None = None,
        models: Models | None = None,
    ) -> None:
        self.roster, self.me = tuple(roster), me
        self.insecure = insecure
        self.counters: Counter[str] = Counter()
        self.bytes_in = self.bytes_out = 0
        self.answer = answer or (lambda _peer, _message: {})
        self.models = models or (lambda _peer, _message: iter(()))
        self._files = files
        self._check_security()
        self._lock = threading.Lock()
        self._channels: dict[int, grpc.Channel] = {}
        self._mailbox: Mailbox | None = None
        self._members: tuple[int, ...] = ()
        self._opened = threading.Condition()
        self._buckets = {peer: _Bucket(CALLS_PER_SECOND) for peer in range(len(roster))}
        self._streams: Counter[int] = Counter()
        self._metadata = tls.metadata_for(self.roster[me].name, insecure=insecure)
        # one stream of the running attempt, one of the next, and control calls, from every other peer
        workers = 3 * len(roster) + 8
        self._options = tls.options(max_message, 64)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="securedfl-server")
        self._server = grpc.server(
            self._pool,
            handlers=[_Methods(self)],
            options=self._options,
            maximum_concurrent_rpcs=workers,
        )
        self.stopping = threading.Event()
        if serve:
            self._listen(listen or self.roster[me].address)

    def _listen(self, address: str) -> None:
        try:
            bound = (
                self._server.add_insecure_port(address)
                if self.insecure
                else self._server.add_secure_port(address, tls.server_credentials(self._key_files))
            )
        except RuntimeError:
            bound = 0
        if not bound:
            raise ConfigError(
                f"cannot listen at {address}; is the port taken or the address not of this machine?"
            )
        self._server.start()

    def close(self, grace: float = 0.5) -> None:
        """Stop listening and hang up."""
        self.stopping.set()
        with self._opened:
            self._opened.notify_all()
        self._server.stop(grace).wait()
        with self._lock:
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- talking ----------------------------------------------------------------------------------------------

    def call(self, peer: int, message: dict[str, Any], timeout: float = 2.0) -> dict[str, Any]:
        """Ask a peer something and return its answer; raise `PeerLostError` or `IdentityError` if there is none."""
        method = self._channel(peer, timeout).unary_unary(SERVICE + "Control")
        try:
            reply = method(msgpack.packb(message), timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._explain(peer, error) from None
        except ValueError:  # another thread has just hung up
            raise PeerLostError(f"the connection to {self.roster[peer].name} broke off") from None
        return read_control(reply)

    def fetch(self, peer: int, message: dict[str, Any], timeout: float) -> Iterator[bytes]:
        """Receive a model from a peer, piece by piece."""
        method = self._channel(peer, timeout).unary_stream(SERVICE + "Model")
        try:
            stream = method(msgpack.packb(message), timeout=timeout, metadata=self._metadata)
        except ValueError:
            raise PeerLostError(f"the connection to {self.roster[peer].name} broke off") from None
        try:
            yield from stream
        except grpc.RpcError as error:
            raise self._explain(peer, error) from None

    def outlet(self, peer: int, place: Place, mailbox: Mailbox) -> StreamOutlet:
        """Open the stream of one attempt to a peer."""
        method = self._channel(peer, 5.0).stream_unary(SERVICE + "Data")
        try:
            return StreamOutlet(self, peer, place, mailbox, method, self._metadata)
        except ValueError:
            raise PeerLostError(f"the connection to {self.roster[peer].name} broke off") from None

    def hang_up(self, peer: int) -> None:
        """Forget a connection, so that the next call makes a new one."""
        with self._lock:
            channel = self._channels.pop(peer, None)
        if channel is not None:
            channel.close()

    # -- attempts ---------------------------------------------------------------------------------------------

    def attach(self, mailbox: Mailbox, members: Sequence[int]) -> None:
        """Let frames of an attempt in; ``members`` gives the peer of each number in the protocol."""
        with self._opened:
            self._mailbox, self._members = mailbox, tuple(members)
            self._opened.notify_all()

    def detach(self, mailbox: Mailbox) -> None:
        """Let no more frames of an attempt in."""
        with self._opened:
            if self._mailbox is mailbox:
                self._mailbox = None
        self.counters.update({f"dropped: {why}": count for why, count in mailbox.dropped.items()})

    def _await_mailbox(self, place: Place, patience: float) -> tuple[Mailbox, tuple[int, ...]] | None:
        """Wait until this peer begins the attempt that a stream belongs to; None if it is over or never begins."""
        deadline = time.monotonic() + patience
        wanted = (place.round, place.attempt)
        with self._opened:
            while not self.stopping.is_set():
                box = self._mailbox
                if box is not None:
                    current = (box.place.round, box.place.attempt)
                    if place.run != box.place.run or wanted < current:
                        return None
                    if wanted == current:
                        return box, self._members
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._opened.wait(left)
        return None

    # -- connections ------------------------------------------------------------------------------------------

    @property
    def _key_files(self) -> KeyFiles:
        if self._files is None:
            raise ConfigError("no key files are given; without them peers cannot prove who they are")
        return self._files

    def _check_security(self) -> None:
        if not self.insecure:
            _ = self._key_files
            return
        outside = [member.name for member in self.roster if not tls.is_loopback(member.host)]
        if outside:
            raise ConfigError(
                f"insecure = true is for loopback addresses only, but {outside[0]} is elsewhere; "
                "issue keys with: securedfl certs init, securedfl certs issue"
            )

    def _channel(self, peer: int, timeout: float) -> grpc.Channel:
        with self._lock:
            channel = self._channels.get(peer)
        if channel is not None:
            return channel
        member = self.roster[peer]
        if self.insecure:
            channel = grpc.insecure_channel(member.address, options=self._options)
        else:
            pem = tls.fetch_certificate(member, self._key_files, timeout)
            channel = grpc.secure_channel(
                member.address,
                tls.channel_credentials(self._key_files, pem),
                options=[*self._options, ("grpc.ssl_target_name_override", member.name)],
            )
        with self._lock:
            if self.stopping.is_set():
                channel.close()
                raise PeerLostError("this peer is stopping")
            first = self._channels.setdefault(peer, channel)
        if first is not channel:
            channel.close()
        return first

    def _explain(self, peer: int, error: grpc.RpcError) -> SecuredFLError:
        name, code = self.roster[peer].name, error.code()
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return IdentityError(f"{name} refuses this peer: {error.details()}")
        if code == grpc.StatusCode.UNAVAILABLE:
            self.hang_up(peer)
        return PeerLostError(f"{name} does not answer ({code.name.lower().replace('_', ' ')})")


class StreamOutlet:
    """Sends the frames of one attempt to one peer through one gRPC stream."""

    def __init__(
        self, endpoint: Endpoint, peer: int, place: Place, mailbox: Mailbox, method: Any, metadata: Any
    ) -> None:
        self._endpoint, self._peer, self._mailbox = endpoint, peer, mailbox
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
        name = self._endpoint.roster[self._peer].name
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
                self._endpoint.bytes_out += sum(message.nbytes for _, message in items)

    def _on_done(self, call: Any) -> None:
        self._ended.set()
        if not call.cancelled() and call.code() != grpc.StatusCode.OK:
            name = self._endpoint.roster[self._peer].name
            self._mailbox.fail(PeerLostError(f"the connection to {name} broke off"))


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """What the server answers to whom."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._handlers = {
            SERVICE + "Control": grpc.unary_unary_rpc_method_handler(self._control),
            SERVICE + "Data": grpc.stream_unary_rpc_method_handler(self._data),
            SERVICE + "Model": grpc.unary_stream_rpc_method_handler(self._model),
        }

    def service(self, details: Any) -> Any:
        return self._handlers.get(details.method)

    def _caller(self, context: Any, *, limited: bool = True) -> int:
        end = self._endpoint
        try:
            metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
            peer = tls.caller(context.auth_context(), metadata, end.roster, insecure=end.insecure)
        except (IdentityError, ValueError) as error:
            end.counters["refused: stranger"] += 1
            log.warning("refused a connection: %s", error)
            context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        if limited and not end._buckets[peer].take():
            end.counters["refused: too many calls"] += 1
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls")
        return peer

    def _control(self, request: bytes, context: Any) -> bytes:
        end = self._endpoint
        peer = self._caller(context)
        try:
            answer = end.answer(peer, read_control(request))
        except FrameError as error:
            end.counters["refused: malformed"] += 1
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
        end._streams[sender] += 1
        mailbox: Mailbox | None = None
        number = -1
        try:
            if end._streams[sender] > 3:
                end.counters["refused: too many streams"] += 1
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
            for frame in (frame for data in requests for frame in unbundle(data)):
                if mailbox is None:
                    found = end._await_mailbox(frame.place, patience=30.0)
                    if found is None or sender not in found[1]:
                        end.counters["dropped: another attempt"] += 1
                        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not in this attempt")
                        return b""  # abort raises; this is for the reader
                    mailbox, members = found
                    number = members.index(sender)
                    if frame.spec.count == 0:
                        continue
                end.bytes_in += len(frame.body)
                mailbox.deliver(number, frame)
        except FrameError as error:
            end.counters["refused: malformed"] += 1
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
            end._streams[sender] -= 1
        return b""


class _Bucket:
    """Lets so many calls per second through, twice as many in a burst."""

    def __init__(self, rate: float) -> None:
        self._rate, self._left, self._at = rate, 2 * rate, time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            now = time.monotonic()
            self._left = min(2 * self._rate, self._left + (now - self._at) * self._rate)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


def read_control(data: bytes) -> dict[str, Any]:
    """Read a control message: a small map with text keys; anything else is a `FrameError`."""
    if len(data) > MAX_CONTROL:
        raise FrameError("a control message that is too long")
    try:
        message = msgpack.unpackb(data, strict_map_key=True, max_ext_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError, TypeError):
        raise FrameError("an unreadable control message") from None
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise FrameError("a control message that is not a map")
    return message
