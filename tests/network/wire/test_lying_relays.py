"""Relays that lie, and certificates that count no more: a good relay is found all the same, and named when it fails."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from securedfl.network.wire import keys as certificates
from securedfl.network.wire.contact.pursuit import RELAYS_AT_ONCE, Pursuit
from securedfl.network.wire.frames import Kind
from securedfl.network.wire.values import LinkDown, LinkUp
from tests.network.wire.by_hand import ByHand


def drops(server, most):
    """Let a relay pass so many bytes each way, and then nothing."""

    async def copy(source, target, _silence):
        left = most
        while left > 0:
            data = await server._loop.sock_recv(source, left)
            if not data:
                return
            left -= len(data)
            await server._loop.sock_sendall(target, data)
        await asyncio.sleep(3600)

    carrier = server.relay._carrier
    carrier._pipes, carrier._copy = nullcontext, copy


def far_away(server, seconds):
    """Let a relay take so long to join two."""
    join = server.relay.join

    def late(connection, target):
        connection.settled = True
        server._loop.call_later(seconds, lambda: connection.attempt(join, connection, target))

    server.relay.join = late


def test_a_relay_that_drops_bytes_does_not_beat_a_good_one(world):
    relays = [world.relay("relay-a"), world.relay("relay-b")]
    drops(world.relays["relay-a"], 6000)
    far_away(world.relays["relay-b"], 0.6)
    first, second = world.start(2, silent=("p0", "p1"), relays=relays, idle=2.0)
    first.linked("p1", through="relay-a")
    first.until(lambda: first.all_of(LinkDown) or first.links.send("p1", bytes(1000)) is None, "lost link")
    first.linked("p1", through="relay-b")
    second.linked("p0", through="relay-b")
    assert len([event for event in first.all_of(LinkUp) if event.through == "relay-a"]) == 1
    # and people are told which relay it was
    assert "through relay-a" in first.all_of(LinkDown)[0].reason


@pytest.mark.parametrize("says", [b"", b"\x16\x03\x01\x00\x05hello"], ids=["nothing", "garbage"])
def test_relays_that_only_say_that_they_join_keep_nobody_from_a_good_one(world, says):
    relays = [world.relay(name) for name in ("p2", "p3", "p4", "p5")]
    home = SimpleNamespace(me="p0", roster={}, links={}, relays={relay.name: relay for relay in relays})
    # the relays in the order in which the two ask them
    *lying, good = [relay.name for relay in Pursuit(home, "p1")._candidates()]
    assert len(lying) == RELAYS_AT_ONCE
    held = []

    def join(connection, _target):
        connection.settled = True
        connection.reply(Kind.JOINED)
        held.append(connection.detach()[0])
        held[-1].send(says)

    for name in lying:
        world.relays[name].relay.join = join
    first, second = world.start(2, silent=("p0", "p1"), relays=relays)
    try:
        first.until(lambda: first.all_of(LinkUp), "link", timeout=20)
        second.linked("p0", through=good)
    finally:
        # until then more may come
        world.close()
        for sock in held:
            sock.close()


def test_the_holder_of_a_former_certificate_takes_nobodys_place_at_a_relay(world, tmp_path):
    for name in ("ca.key", "ca.crt"):
        (tmp_path / name).write_bytes((world.keys["p0"].authority.parent / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    former = certificates.issue(tmp_path, "p0")
    relay = world.relay("relay-a")
    server = world.relays["relay-a"].relay
    server._most = 2

    def ask(files, target):
        member = ByHand(relay.port, files, "relay-a")
        member.send(Kind.JOIN, 0, bytes.fromhex(world.member(target).fingerprint))
        member.send(Kind.PING)
        assert member.read()[0] is Kind.PONG
        return member

    # as many as it may have; the one in whose place it waits has as many of its own
    waiting = [ask(former, target) for target in ("p1", "p2")]
    first, second = world.start(2, silent=("p0", "p1"), relays=[relay])
    first.linked("p1", through="relay-a")
    second.linked("p0", through="relay-a")
    assert (server.pairs, len(server._waiting), len(waiting)) == (1, 2, 2)
