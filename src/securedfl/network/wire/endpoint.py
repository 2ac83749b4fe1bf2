"""An endpoint: one peer's gRPC server and its connections to all others.

What the server answers is in `server`; how the frames of an attempt leave is in `outlet`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import msgpack

from securedfl.errors import ConfigError, PeerLostError, SecuredFLError
from securedfl.network.links.keys import KeyFiles
from securedfl.network.wire import tls
from securedfl.network.wire.control import read_control
from securedfl.network.wire.frames import Place
from securedfl.network.wire.mailbox import Mailbox
from securedfl.network.wire.outlet import StreamOutlet
from securedfl.network.wire.server import SERVICE, Methods
from securedfl.network.wire.tls import IdentityError, Member

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
        self._metadata = tls.metadata_for(self.roster[me].name, insecure=insecure)
        # one stream of the running attempt, one of the next, and control calls, from every other peer
        workers = 3 * len(roster) + 8
        self._options = tls.options(max_message, 64)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="securedfl-server")
        self._methods = Methods(self)
        self._server = grpc.server(
            self._pool,
            handlers=[self._methods],
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
            raise ConfigError(f"cannot listen at {address}; is the port taken or the address not of this machine?")
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

    def call_all(
        self, peers: Iterable[int], message: dict[str, Any], timeout: float = 2.0
    ) -> dict[int, dict[str, Any]]:
        """Ask several peers the same at the same time; return the answers by peer, without those that gave none."""
        data, calls, answers = msgpack.packb(message), {}, {}
        for peer in peers:
            with suppress(SecuredFLError, ValueError):
                method = self._channel(peer, timeout).unary_unary(SERVICE + "Control")
                calls[peer] = method.future(data, timeout=timeout, metadata=self._metadata)
        for peer, call in calls.items():
            with suppress(SecuredFLError, grpc.RpcError, grpc.FutureCancelledError):
                answers[peer] = read_control(call.result())
        return answers

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
            return StreamOutlet(
                self.roster[peer].name, place, mailbox, method, metadata=self._metadata, sent=self.count_out
            )
        except ValueError:
            raise PeerLostError(f"the connection to {self.roster[peer].name} broke off") from None

    def hang_up(self, peer: int) -> None:
        """Forget a connection, so that the next call makes a new one."""
        with self._lock:
            channel = self._channels.pop(peer, None)
        if channel is not None:
            channel.close()

    @property
    def open_streams(self) -> int:
        """How many streams of frames the server is reading."""
        return self._methods.open_streams

    def count_in(self, nbytes: int) -> None:
        """Note bytes of messages that arrived."""
        with self._lock:
            self.bytes_in += nbytes

    def count_out(self, nbytes: int) -> None:
        """Note bytes of messages that left."""
        with self._lock:
            self.bytes_out += nbytes

    def count(self, what: str) -> None:
        """Note something that was refused or dropped."""
        with self._lock:
            self.counters[what] += 1

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
        with self._lock:
            self.counters.update({f"dropped: {why}": count for why, count in mailbox.dropped.items()})

    def await_mailbox(self, place: Place, patience: float) -> tuple[Mailbox, tuple[int, ...]] | None:
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
