"""Relays that lie, and certificates that count no more: a good relay is found all the same, and named when it fails."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from securedfl.network.wire.contact.pursuit import RELAYS_AT_ONCE, Pursuit
from securedfl.network.wire.frames import Kind
from securedfl.network.wire.values import LinkDown, LinkUp


def drops(server, most):
    """Let a relay pass so many bytes each way, and then nothing."""

    async def move(source, target, _silence):
        left = most
        while left > 0:
            data = await server._loop.sock_recv(source, left)
            if not data:
                return
            left -= len(data)
            await server._loop.sock_sendall(target, data)
        await asyncio.sleep(3600)

    server.relay._carrier.move = move


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
        for sock in held:
            sock.close()
