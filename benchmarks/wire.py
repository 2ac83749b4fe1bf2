"""What moving bytes costs by itself: every process sends every other the same number of bytes, with no protocol at all.

Used by `network.py`, which asks for as many bytes as an average needs: bare sockets and bare gRPC streams, both with
and without mutual TLS 1.3.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MESSAGE = 1 << 20
METHOD = "/bare/Data"

Exchange = Callable[[], None]


def barrier(folder: Path, me: int, n: int, name: object) -> None:
    """Wait until all processes are here."""
    (folder / f"{name}-{me}").touch()
    while not all((folder / f"{name}-{k}").exists() for k in range(n)):
        time.sleep(0.002)


def exchange(folder: Path, me: int, job: dict[str, Any]) -> dict[str, object]:
    """Run one process: exchange the bytes once to warm up, then as often as asked for."""
    n = job["peers"]
    once = (_sockets if job["kind"] == "socket" else _streams)(folder, me, job)
    once()
    spans, used = [], time.process_time()
    for turn in range(job["repeat"]):
        barrier(folder, me, n, turn)
        began = time.monotonic()
        once()
        spans.append((began, time.monotonic()))
    used = time.process_time() - used
    barrier(folder, me, n, "end")
    return {"spans": spans, "processor": used / job["repeat"]}


def _pieces(nbytes: int, message: bytes) -> Iterator[bytes]:
    for at in range(0, nbytes, len(message)):
        yield message[: nbytes - at]


def _sockets(folder: Path, me: int, job: dict[str, Any]) -> Exchange:
    """Connect to everybody by sockets, and return what exchanges the bytes."""
    n, nbytes, keys = job["peers"], job["bytes"], folder / "keys"
    message = os.urandom(MESSAGE)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(keys / "ca.crt")
        context.load_cert_chain(keys / f"p{me}.crt", keys / f"p{me}.key")
    server.verify_mode = ssl.CERT_REQUIRED
    others = [member for k, member in enumerate(job["roster"]) if k != me]
    incoming: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", job["roster"][me][2]), backlog=n)

    def accept() -> None:
        for _ in others:
            raw = listener.accept()[0]
            incoming.append(raw if job["insecure"] else server.wrap_socket(raw, server_side=True))

    accepting = threading.Thread(target=accept)
    accepting.start()
    barrier(folder, me, n, "listening")
    outgoing = []
    for name, host, port, _ in others:
        raw = socket.create_connection((host, port))
        outgoing.append(raw if job["insecure"] else client.wrap_socket(raw, server_hostname=name))
    accepting.join()

    def receive(connection: socket.socket) -> None:
        buffer, left = memoryview(bytearray(MESSAGE)), nbytes
        while left:
            left -= connection.recv_into(buffer[: min(left, MESSAGE)])

    def send(connection: socket.socket) -> None:
        for piece in _pieces(nbytes, message):
            connection.sendall(piece)

    def once() -> None:
        threads = [threading.Thread(target=receive, args=(connection,)) for connection in incoming]
        threads += [threading.Thread(target=send, args=(connection,)) for connection in outgoing]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return once


def _streams(folder: Path, me: int, job: dict[str, Any]) -> Exchange:
    """Open gRPC channels to everybody, and return what exchanges the bytes."""
    import grpc

    from securedfl.network.wire.keys import KeyFiles
    from securedfl.network.wire import tls

    n, nbytes, keys = job["peers"], job["bytes"], folder / "keys"
    message, options = os.urandom(MESSAGE), tls.options(2 * MESSAGE, n)
    files = KeyFiles(keys / f"p{me}.key", keys / f"p{me}.crt", keys / "ca.crt")
    arrived = threading.Semaphore(0)

    def take(requests: Iterator[bytes], _context: Any) -> bytes:
        for _ in requests:
            pass
        arrived.release()
        return b""

    handler = grpc.method_handlers_generic_handler("bare", {"Data": grpc.stream_unary_rpc_method_handler(take)})
    server = grpc.server(ThreadPoolExecutor(2 * n), handlers=[handler], options=options)
    address = f"127.0.0.1:{job['roster'][me][2]}"
    if job["insecure"]:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, tls.server_credentials(files))
    server.start()
    barrier(folder, me, n, "listening")
    channels = []
    for name, host, port, _ in (member for k, member in enumerate(job["roster"]) if k != me):
        if job["insecure"]:
            channels.append(grpc.insecure_channel(f"{host}:{port}", options=options))
        else:
            credentials = tls.channel_credentials(files, files.authority.read_bytes())
            named = [*options, ("grpc.ssl_target_name_override", name)]
            channels.append(grpc.secure_channel(f"{host}:{port}", credentials, options=named))

    def once(_server: grpc.Server = server) -> None:  # which lives as long as this
        calls = [channel.stream_unary(METHOD).future(_pieces(nbytes, message)) for channel in channels]
        for call in calls:
            call.result()
        for _ in calls:
            arrived.acquire()

    return once
