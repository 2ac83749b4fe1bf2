"""What a server refuses in real calls: TLS 1.2, replays, too many streams, messages that are too long."""

from __future__ import annotations

import socket
import ssl
import struct
import threading

import grpc
import msgpack
import numpy as np
import pytest

from securedfl.designs import best
from securedfl.network.driver import SLICED_CHUNK, Plan
from securedfl.network.links import keys as certificates
from securedfl.network.routes import find_routes
from securedfl.network.wire.frames import Place, Spec, bundle, decode, encode
from securedfl.network.wire.mailbox import Mailbox
from securedfl.network.wire.server import SERVICE, STREAMS_PER_PEER
from securedfl.protocols import by_name
from tests.network.peer_processes import RUN


def http2(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call_by_hand(port, files, version):
    """Make one gRPC call over a TLS version of one's choice, which gRPC itself does not let anybody choose."""
    context = ssl.create_default_context(cafile=str(files.authority))
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    headers = b"".join(
        literal(name, value)
        for name, value in [
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":path", SERVICE.encode() + b"Control"),
            (b":authority", b"p0"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        ]
    )
    message = msgpack.packb({"kind": "x"})
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname="p0") as connection,
    ):
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + http2(4, 0, 0)
            + http2(1, 4, 1, headers)
            + http2(0, 1, 1, struct.pack(">BI", 0, len(message)) + message)
        )
        reader = connection.makefile("rb")
        while True:  # until the server ends the stream of the call
            head = reader.read(9)
            assert len(head) == 9, "the server hung up"
            reader.read(int.from_bytes(head[:3], "big"))
            if int.from_bytes(head[5:], "big") == 1 and (head[4] & 1 or head[3] == 3):
                return connection.version()


@pytest.mark.parametrize(("version", "answered"), [("TLSv1_2", 0), ("TLSv1_3", 1)])
def test_tls_1_2_is_refused_in_a_real_call(endpoints, keys, version, answered):
    """The same call by the same member is answered over TLS 1.3 and refused over TLS 1.2."""
    first, _ = endpoints(2)
    calls = []
    first.answer = lambda peer, message: calls.append((peer, message)) or {}
    spoken = call_by_hand(first.roster[0].port, keys[1][1], getattr(ssl.TLSVersion, version))
    assert spoken == version.replace("_", ".")
    assert calls == [(1, {"kind": "x"})] * answered
    assert first.counters["refused: stranger"] == 1 - answered


# -- streams ------------------------------------------------------------------------------------------------------


def channel_of(endpoint, files, root):
    credentials = grpc.ssl_channel_credentials(
        root.certificate.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes()
    )
    return grpc.secure_channel(
        endpoint.roster[0].address, credentials, options=[("grpc.ssl_target_name_override", "p0")]
    )


def attached(endpoint, attempt):
    """Let the first of two peers begin an attempt of `plain`, in which it expects ten numbers from the other."""
    routes = find_routes(by_name("plain").on(best(3, 2, 0)), 3, 10, "float32")[0]
    mailbox = Mailbox(Place(RUN, 1, attempt, 0, 0), [routes])
    endpoint.attach(mailbox, (0, 1, 2))
    return mailbox


def recorded(attempt):
    """The bytes of a stream: the empty frame that opens it, and one message."""
    place = Place(RUN, 1, attempt, 0, 0)
    return [bundle([(place, np.empty(0, "<f4"))]), bundle([(place, np.arange(10, dtype="<f4"))])]


def send(channel, messages):
    try:
        channel.stream_unary(SERVICE + "Data")(iter(messages), timeout=20)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def test_replays_are_dropped_and_counted(endpoints, keys, tmp_path):
    """The bytes of a stream again: in the same attempt, in a later one, and from a stranger."""
    folder, files = keys
    first, _ = endpoints(2)
    stream = recorded(attempt=5)
    with channel_of(first, files[1], files[0]) as channel:
        mailbox = attached(first, attempt=5)
        assert send(channel, stream) == "OK"
        assert send(channel, stream) == "OK"
        assert mailbox.dropped == {"duplicate": 1}
        first.detach(mailbox)
        assert first.counters["dropped: duplicate"] == 1
        later = attached(first, attempt=6)
        assert send(channel, stream) == "FAILED_PRECONDITION"
        assert first.counters["dropped: another attempt"] == 1
        assert not later._inboxes
    for name in ("ca.key", "ca.crt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    stranger = certificates.issue(tmp_path, "stranger")  # of the same authority, but not in the roster
    with channel_of(first, stranger, files[0]) as channel:
        assert send(channel, recorded(attempt=6)) == "UNAUTHENTICATED"
        assert first.counters["refused: stranger"] == 1
    again = certificates.issue(tmp_path, "p1")  # the name of a member, but another key
    with channel_of(first, again, files[0]) as channel:
        assert send(channel, recorded(attempt=6)) == "UNAUTHENTICATED"
    assert not later._inboxes


def test_a_peer_opens_so_many_streams_and_no_more(endpoints, keys):
    first, _ = endpoints(2)
    attached(first, attempt=5)
    release = threading.Event()

    def held_open():
        yield recorded(5)[0]
        release.wait(20)

    with channel_of(first, keys[1][1], keys[1][0]) as channel:
        open_ = [channel.stream_unary(SERVICE + "Data").future(held_open()) for _ in range(STREAMS_PER_PEER)]
        while first.open_streams < STREAMS_PER_PEER:
            release.wait(0.01)
        assert send(channel, recorded(5)) == "RESOURCE_EXHAUSTED"
        assert first.counters["refused: too many streams"] == 1
        release.set()
        for stream in open_:
            stream.result(20)
        assert send(channel, recorded(5)) == "OK"


def test_long_messages_are_refused(endpoints, keys):
    first, _ = endpoints(2)
    attached(first, attempt=5)
    with channel_of(first, keys[1][1], keys[1][0]) as channel:
        assert send(channel, [bytes(17 << 20)]) == "RESOURCE_EXHAUSTED"
        control = channel.unary_unary(SERVICE + "Control")
        with pytest.raises(grpc.RpcError, match="too long"):
            control(bytes(1 << 17), timeout=20)
        with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
            channel.unary_unary(SERVICE + "Other")(b"", timeout=20)


def test_vectors_over_two_gibibytes_have_no_32_bit_limit():
    """Places and lengths by arithmetic, without the memory: 5 GiB of float64 in chunks, and a forged frame."""
    size = 5 * (1 << 30) // 8 + 12345
    generator = by_name("shares").on(best(3, 2, 0), strength=2)
    plan = Plan.make(generator, 0, 3, size, "float64", commit_step=1, chunk=SLICED_CHUNK)
    assert sum(plan.chunk for _ in plan.routes[:-1]) + size % plan.chunk == size
    ratio = plan.bytes_to_send / (8 * size)
    assert 2**31 < 8 * size < plan.bytes_to_send
    small = Plan.make(generator, 0, 3, SLICED_CHUNK, "float64", commit_step=1, chunk=SLICED_CHUNK)
    assert ratio == pytest.approx(small.bytes_to_send / (8 * SLICED_CHUNK), rel=1e-3)
    far = Place(RUN, 1, 2, 1, len(plan.routes) - 1)
    assert decode(encode(far, np.zeros(1))).place == far
    assert Place(RUN, 1, 2, 1, 2**31 + 5) == decode(encode(Place(RUN, 1, 2, 1, 2**31 + 5), np.zeros(1))).place
    assert Spec("<f8", 2**31).nbytes == 2**34
