"""Peers that cannot reach each other: through a third peer, a relay, a proxy; and relays that die."""

from __future__ import annotations

import os
import socket
import threading

import numpy as np
import pytest

from securedfl.network.wire.connection import Connection
from securedfl.network.wire.contact import carry
from securedfl.network.wire.values import LinkDown, LinkUp, Reach


def exchange(first, second, size=3_000_000):
    """Send an array and a message from one peer to another and back."""
    array, got = np.arange(size, dtype=np.uint32), np.zeros(size, dtype=np.uint32)
    for sender, receiver in ((first, second), (second, first)):
        thread = threading.Thread(target=sender.send_array, args=(receiver.name, b"key", array))
        thread.start()
        receiver.receive_array(sender.name, b"key", got)
        thread.join(60)
        np.testing.assert_array_equal(array, got)
        got[:] = 0
        assert sender.links.send(receiver.name, b"hello")
        receiver.heard(sender.name, b"hello")


def test_two_that_only_dial_out_are_joined_by_a_third_peer(world):
    first, second, _third = world.start(3, silent=("p0", "p1"))
    first.linked("p2")
    second.linked("p2")
    first.linked("p1", through="p2")
    second.linked("p0", through="p2")
    assert first.links.reaches() == {"p1": Reach(True, "p2"), "p2": Reach(True)}
    exchange(first, second)


@pytest.mark.parametrize("pipes", [1, 96])
def test_two_that_only_dial_out_are_joined_by_a_relay(world, monkeypatch, pipes):
    spliced, splice = [], os.splice
    monkeypatch.setattr(carry.os, "splice", lambda *given, **how: spliced.append(given) or splice(*given, **how))
    monkeypatch.setattr(carry, "_MOST_PIPES", pipes)
    relay = world.relay("relay-a")
    first, second = world.start(2, silent=("p0", "p1"), relays=[relay])
    first.linked("p1", through="relay-a")
    exchange(first, second)
    assert world.relays["relay-a"].relay.pairs == 1
    assert world.relays["relay-a"].relay.bytes > 2 * 12_000_000
    assert bool(spliced) == (pipes > 1)


def test_small_messages_do_not_wait_for_larger_ones_on_their_way_through_a_relay(world, monkeypatch):
    joined = []
    detach = Connection.detach
    monkeypatch.setattr(Connection, "detach", lambda self: joined.append(detach(self)) or joined[-1])
    relay = world.relay("relay-a")
    first, _second = world.start(2, silent=("p0", "p1"), relays=[relay])
    first.linked("p1", through="relay-a")
    assert len(joined) == 4
    assert all(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for sock, _ in joined)


def test_descriptors_of_a_relay_come_back(world):
    relay = world.relay("relay-a")
    before = len(os.listdir("/proc/self/fd"))
    peers = world.start(2, silent=("p0", "p1"), relays=[relay])
    peers[0].linked("p1", through="relay-a")
    assert len(os.listdir("/proc/self/fd")) > before
    for peer in peers:
        peer.links.close()
    peers[0].until(lambda: len(os.listdir("/proc/self/fd")) <= before, "closed descriptors")


def test_a_killed_relay_is_replaced_by_another(world):
    relays = [world.relay("relay-a"), world.relay("relay-b")]
    first, second = world.start(2, silent=("p0", "p1"), relays=relays)
    first.until(lambda: first.all_of(LinkUp), "link")
    used = first.all_of(LinkUp)[0].through
    world.relays[used].close()
    left = ({"relay-a", "relay-b"} - {used}).pop()
    first.until(lambda: first.all_of(LinkDown), "lost link")
    first.linked("p1", through=left)
    second.linked("p0", through=left)
    exchange(first, second)


def test_nobody_is_joined_without_a_certificate_of_the_relay_that_was_named(world):
    relay = world.relay("relay-a")
    world.keys = {**world.keys}
    wrong = relay.__class__(relay.name, relay.host, relay.port, "0" * 64)
    first, _ = world.start(2, silent=("p0", "p1"), relays=[wrong])
    first.until(lambda: first.refused, "reason")
    assert "fingerprint" in first.refused[0].reason
    assert not first.all_of(LinkUp)


class Proxy:
    """An HTTP CONNECT proxy that notes what it is asked for, and refuses if told to."""

    def __init__(self, *, refuse=False):
        self.asked, self._refuse, self._sockets = [], refuse, []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:secret@127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._sockets.append(client)
            request = b""
            while b"\r\n\r\n" not in request:
                request += client.recv(4096)
            self.asked.append(request.decode())
            if self._refuse:
                client.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                client.close()
                continue
            host, port = request.split()[1].decode().rsplit(":", 1)
            server = socket.create_connection((host, int(port)))
            self._sockets.append(server)
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        target.close()

    def close(self):
        for sock in (self._server, *self._sockets):
            sock.close()


@pytest.fixture
def proxy(request):
    made = Proxy(**getattr(request, "param", {}))
    yield made
    made.close()


def test_links_through_an_http_proxy(world, proxy):
    roster = world.roster(["p0", "p1"], silent=("p0",))
    second = world.peer("p1", roster)
    first = world.peer("p0", roster, proxy=proxy.url)
    first.linked("p1")
    exchange(first, second)
    assert proxy.asked[0].startswith(f"CONNECT 127.0.0.1:{world.ports['p1']} HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in proxy.asked[0]


@pytest.mark.parametrize("proxy", [{"refuse": True}], indirect=True)
def test_a_proxy_that_refuses_is_named(world, proxy):
    roster = world.roster(["p0", "p1"], silent=("p0",))
    first = world.peer("p0", roster, proxy=proxy.url)
    world.peer("p1", roster)
    first.until(lambda: first.refused, "reason")
    reason = first.refused[0].reason
    assert "proxy refused with code 403" in reason
    assert "secret" not in reason


def test_a_relay_that_stops_politely_refuses_nobody(world):
    """Who waits there for a peer that is away must not be told that keys or versions do not fit."""
    relay = world.relay("relay-a")
    (first,) = [world.peer("p0", world.roster(["p0", "p1"], silent=["p0", "p1"]), relays=[relay])]
    waiting = world.relays["relay-a"].relay._waiting
    first.until(lambda: waiting, "wait at the relay")
    world.relays["relay-a"].close()
    first.until(lambda: any("the relay is stopping" in event.reason for event in first.refused), "reason")
    assert not any(event.unfit for event in first.refused)
    assert not first.links.reaches()["p1"].unfit
