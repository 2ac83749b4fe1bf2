"""Bytes from socket to socket: whole, also where the system refuses to splice, and as long as some move."""

import asyncio
import errno
import os
import socket
import threading
import time

import pytest

from securedfl.network.wire.contact import carry
from securedfl.network.wire.contact.carry import Carrier
from securedfl.network.wire.loop import Loop

BYTES = os.urandom(3_000_000)


def ends():
    """Return the two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        first = socket.create_connection(server.getsockname(), timeout=30)
        second, _ = server.accept()
    second.settimeout(30)
    return first, second


class Way:
    """Somebody who sends, the carrier, and somebody who reads."""

    def __init__(self):
        self.loop = Loop("carry")
        self.carrier = Carrier(self.loop)
        (self.sender, self.source), (self.target, self.reader) = ends(), ends()
        for sock in (self.source, self.target):
            sock.setblocking(False)

    def move(self, silence=30.0):
        return asyncio.run_coroutine_threadsafe(self.carrier.join(self.source, self.target, silence), self.loop)

    def read(self, count, pause=0.0, at_once=1 << 16):
        data = b""
        while len(data) < count and (piece := self.reader.recv(min(at_once, count - len(data)))):
            data += piece
            time.sleep(pause)
        return data

    def close(self):
        self.loop.end()
        for sock in (self.sender, self.source, self.target, self.reader):
            sock.close()


@pytest.fixture
def way():
    made = Way()
    yield made
    made.close()


def refused(*_given, **_how):
    raise OSError(errno.ENOSYS, "not here")


@pytest.mark.parametrize("lack", ["", "splice", "pipe", "pipes"])
def test_all_bytes_arrive_and_nothing_is_left_open(way, monkeypatch, lack):
    if lack == "pipes":
        monkeypatch.setattr(carry, "_MOST_PIPES", 1)
    elif lack:
        monkeypatch.setattr(carry.os, lack, refused)
    before = len(os.listdir("/proc/self/fd"))
    moving = way.move()
    thread = threading.Thread(target=lambda: (way.sender.sendall(BYTES), way.sender.shutdown(socket.SHUT_WR)))
    thread.start()
    assert way.read(len(BYTES)) == BYTES
    thread.join(30)
    moving.result(30)
    assert way.carrier.bytes == len(BYTES)
    # the two sockets in between
    assert len(os.listdir("/proc/self/fd")) == before - 2


def test_urgent_data_does_not_keep_the_thread_busy_and_others_get_past_it(way, monkeypatch):
    calls, splice = [], os.splice
    monkeypatch.setattr(carry.os, "splice", lambda *given, **how: calls.append(given) or splice(*given, **how))
    moving = way.move()
    way.sender.sendall(b"before")
    assert way.read(6) == b"before"
    way.sender.send(b"!", socket.MSG_OOB)
    way.sender.sendall(b"after")
    assert way.read(5) == b"after"
    way.sender.sendall(BYTES[:100_000])
    assert way.read(100_000) == BYTES[:100_000]
    assert len(calls) < 1000
    way.sender.close()
    moving.result(30)


def test_who_reads_slowly_is_not_cut_off_as_long_as_it_reads(way):
    for sock, option in ((way.target, socket.SO_SNDBUF), (way.reader, socket.SO_RCVBUF)):
        sock.setsockopt(socket.SOL_SOCKET, option, 4096)
    moving = way.move(silence=2.0)
    thread = threading.Thread(target=way.sender.sendall, args=(BYTES[:600_000],))
    thread.start()
    # longer than the silence in all, and never so long without a byte
    data = b""
    while len(data) < 600_000:
        data += way.read(15_000, pause=0.05, at_once=15_000)
        way.reader.sendall(b"!")
    assert data == BYTES[:600_000]
    thread.join(30)
    moving.result(30)


@pytest.mark.parametrize("pipes", [1, 2])
def test_silence_ends_it(way, monkeypatch, pipes):
    monkeypatch.setattr(carry, "_MOST_PIPES", pipes)
    way.move(silence=0.2).result(30)
    assert way.carrier.bytes == 0
    assert not way.reader.recv(1), "both ends are closed"


@pytest.mark.parametrize("pipes", [1, 2])
def test_who_gives_up_waits_for_nobody(way, monkeypatch, pipes):
    """Threads that wait for bytes end with the pair, and what is lent comes back."""
    monkeypatch.setattr(carry, "_MOST_PIPES", pipes)
    before = len(os.listdir("/proc/self/fd"))
    moving = way.move(silence=3600.0)
    way.sender.sendall(b"so far")
    assert way.read(6) == b"so far"
    moving.cancel()
    assert not way.reader.recv(1)
    until = time.monotonic() + 30
    while len(os.listdir("/proc/self/fd")) > before - 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert (len(os.listdir("/proc/self/fd")), way.carrier._lent) == (before - 2, 0)
