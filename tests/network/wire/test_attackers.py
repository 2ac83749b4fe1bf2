"""Members and relays that mean harm, and networks that are broken: nobody else is held up or filled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time

import pytest

from securedfl.network.wire import frames
from securedfl.network.wire.contact import dial as dialling
from securedfl.network.wire.contact import pursuit
from securedfl.network.wire.frames import Kind, frame
from securedfl.network.wire.values import Limits, LinkDown, LinkUp
from tests.network.wire.by_hand import ByHand


@pytest.fixture
def alone(world):
    """Return p0, whose roster has a p1 that never listens."""
    return world.peer("p0", world.roster(["p0", "p1"], silent=("p1",)), idle=1.0)


def test_bytes_after_the_end_of_tls_are_not_kept(world, alone):
    member = ByHand(world.ports["p0"], world.keys["p1"]).link()
    alone.linked("p1")
    link = alone.links.links["p1"]
    with contextlib.suppress(ssl.SSLError, OSError):
        member.tls.setblocking(False)
        member.tls.unwrap()
    raw = socket.socket(fileno=member.tls.detach())
    raw.settimeout(60)
    with raw, contextlib.suppress(OSError):
        for _ in range(64):
            raw.sendall(bytes(1 << 18))
    alone.until(lambda: alone.all_of(LinkDown) or link._tls._incoming.pending > 1 << 22, "end")
    assert link._tls._incoming.pending < 1 << 22
    assert alone.all_of(LinkDown)


def test_a_member_that_reads_nothing_does_not_end_the_watch_over_others(world):
    first = world.peer("p0", world.roster(["p0", "p1", "p2"], silent=("p1", "p2")), idle=1.0)
    member = ByHand(world.ports["p0"], world.keys["p1"]).link()
    first.linked("p1")
    link = first.links.links["p1"]
    link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    # it asks for more answers than it reads, until as many wait as may
    while len(link.exchange._replies) < 4090:
        member.tls.sendall(frame(Kind.PING) * min(1000, 4092 - len(link.exchange._replies)))
        before = -1
        while before != first.links.traffic[0]:
            before = first.links.traffic[0]
            time.sleep(0.02)
    with contextlib.suppress(OSError):
        for _ in range(30):
            member.send(Kind.PONG)
            time.sleep(0.1)
    other = ByHand(world.ports["p0"], world.keys["p2"]).link()
    other.tls.settimeout(10)
    assert other.until(Kind.PING)
    first.until(lambda: first.all_of(LinkDown), "lost link")
    assert "reads nothing" in first.all_of(LinkDown)[0].reason


class LyingRelay:
    """A third peer that says more than once that two are joined, in one breath."""

    def __init__(self, port, files):
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_verify_locations(files.authority)
        self._context.load_cert_chain(files.certificate, files.key)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._server = socket.create_server(("127.0.0.1", port))
        self.lies, self._open = 0, []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                sock, _ = self._server.accept()
                self._open.append(tls := self._context.wrap_socket(sock, server_side=True))
                if tls.recv(frames.HEADER_BYTES)[0] == Kind.JOIN:
                    tls.sendall(frame(Kind.JOINED) * 50)
                    self.lies += 1
            except (ssl.SSLError, IndexError):
                continue
            except OSError:
                return

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        for sock in (self._server, *self._open):
            sock.close()


def test_a_relay_that_joins_twice_gets_one_connection(world, caplog):
    relay = LyingRelay(world.ports["p2"], world.keys["p2"])
    first = world.peer("p0", world.roster(["p0", "p1", "p2"], silent=("p0", "p1")), limits=Limits(handshake=1.0))
    first.until(lambda: relay.lies, "lie")
    most = 0
    until = time.monotonic() + 3
    while time.monotonic() < until:
        most = max(most, len(first.links.connections))
        time.sleep(0.02)
    relay.close()
    assert most < 20
    assert "an error in the I/O thread" not in caplog.text


def test_who_asks_a_relay_twice_is_sent_away_and_not_kept(world):
    relay = world.relay("relay-a")
    member = ByHand(relay.port, world.keys["p1"], "relay-a")
    for _ in range(2):
        member.send(Kind.JOIN, 0, bytes(32))
    assert member.until(Kind.CLOSE)
    # it is told before it is forgotten
    until = time.monotonic() + 20
    while world.relays["relay-a"].relay._waiting and time.monotonic() < until:
        time.sleep(0.01)
    assert not world.relays["relay-a"].relay._waiting


def test_nothing_is_waited_for_once_the_links_are_closed(world, alone):
    alone.links.close()
    began = time.monotonic()
    for key in range(10):
        alone.links.forget("p1", bytes([key]))
    assert time.monotonic() - began < 30


def test_a_dead_candidate_does_not_end_the_pursuit(world):
    first = world.peer("p0", world.roster(["p0", "p1"]), limits=Limits(handshake=60))
    ByHand(world.ports["p0"], world.keys["p1"]).link()
    first.linked("p1")
    second = ByHand(world.ports["p0"], world.keys["p1"])
    second.send(Kind.HELLO, 0, bytes([frames.VERSION]))
    first.until(lambda: "p1" in first.links._candidates, "candidate")
    # both break off at once, so that the one that is to take the other's place cannot be told
    done = threading.Event()

    def cut():
        candidate = first.links._candidates["p1"]
        candidate._sock.shutdown(socket.SHUT_RDWR)
        first.links.links["p1"].close("cut")
        done.set()

    first.links.loop.call(cut)
    assert done.wait(60)
    # p0 must dial p1 again
    world.peer("p1", world.roster(["p0", "p1"], silent=("p0",)))
    first.until(lambda: len(first.all_of(LinkUp)) == 2, "second link", timeout=20)


# -- networks that are broken -------------------------------------------------------------------------------------


def test_a_proxy_whose_address_is_none_is_told(world):
    first = world.peer("p0", world.roster(["p0", "p1"], silent=("p0",)), proxy="http://proxy:port")
    first.until(lambda: first.refused, "reason", timeout=20)
    assert "must be http://HOST:PORT" in first.refused[0].reason


def test_an_error_nobody_thought_of_does_not_end_the_pursuit(world, monkeypatch):
    tries = []

    async def broken(*_arguments, **_options):
        tries.append(None)
        raise ValueError("embedded null character")

    monkeypatch.setattr(pursuit, "dial", broken)
    first = world.peer("p0", world.roster(["p0", "p1"], silent=("p0",)))
    first.until(lambda: len(tries) > 2, "third try", timeout=20)
    assert "embedded null" in first.refused[0].reason


@pytest.mark.parametrize("bad", ["a black hole", "an unknown family"])
def test_of_several_addresses_a_bad_one_does_not_keep_from_the_others(monkeypatch, bad):
    full, good = socket.create_server(("127.0.0.1", 0), backlog=0), socket.create_server(("127.0.0.1", 0))
    # a listener that accepts nobody: after the first few, nobody gets an answer
    waiting = [socket.socket() for _ in range(4)]
    for sock in waiting:
        sock.setblocking(False)
        sock.connect_ex(full.getsockname())
    family = socket.AF_INET if bad == "a black hole" else 9999
    addresses = [(family, full), (socket.AF_INET, good)]
    found = [(one, socket.SOCK_STREAM, 6, "", sock.getsockname()) for one, sock in addresses]

    async def lookup(*_arguments, **_options):
        return found

    async def try_it():
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup)
        return await dialling.dial("two.example.org", 1, proxy="", timeout=3.0)

    sock, _ = asyncio.run(try_it())
    assert sock.getpeername() == good.getsockname()
    for one in (sock, full, good, *waiting):
        one.close()


def test_a_member_that_links_again_and_again_is_not_linked_each_time(world, alone):
    for _ in range(40):
        with contextlib.suppress(OSError, AssertionError):
            ByHand(world.ports["p0"], world.keys["p1"]).link().tls.close()
    assert 1 <= len(alone.all_of(LinkUp)) <= 15


def test_a_peer_that_hangs_up_on_every_link_is_not_dialled_without_end(world):
    first = world.peer("p1", world.roster(["p1", "p2"], silent=("p1",)))
    second = world.peer("p2", world.roster(["p1", "p2"], silent=("p1",)))
    until = time.monotonic() + 6
    while time.monotonic() < until:
        for link in list(second.links.links.values()):
            second.links.loop.call(link.close, "moody")
        time.sleep(0.005)
    assert len(first.all_of(LinkUp)) <= 15
