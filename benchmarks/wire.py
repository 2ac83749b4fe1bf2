"""What moving bytes costs by itself: every process sends every other the same number of bytes, with no protocol at all.

Used by `network.py`, which asks for as many bytes as an average needs: bare sockets with and without mutual TLS 1.3.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MESSAGE = 1 << 20

Exchange = Callable[[], None]


def barrier(folder: Path, me: int, n: int, name: object) -> None:
    """Wait until all processes are here."""
    (folder / f"{name}-{me}").touch()
    while not all((folder / f"{name}-{k}").exists() for k in range(n)):
        time.sleep(0.002)


def exchange(folder: Path, me: int, job: dict[str, Any]) -> dict[str, object]:
    """Run one process: exchange the bytes once to warm up, then as often as asked for."""
    n = job["peers"]
    once = _sockets(folder, me, job)
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
    listener = socket.create_server((job["roster"][me][1], job["roster"][me][2]), backlog=n)

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
