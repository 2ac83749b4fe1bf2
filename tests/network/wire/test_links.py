"""Links between real sockets: how they come about, what they carry, and how they end."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from securedfl.errors import PeerLostError
from securedfl.network.wire.contact import pursuit
from securedfl.network.wire.values import LinkDown, LinkUp, Reach
from tests.network.wire.conftest import One


def test_everybody_is_linked_once_with_everybody(world):
    peers = world.start(4)
    for peer in peers:
        peer.linked(*(other.name for other in peers if other is not peer))
    for peer in peers:
        assert peer.links.reaches() == {other.name: Reach(True) for other in peers if other is not peer}
        for other in peers:
            if other is not peer:
                assert peer.links.send(other.name, b"from " + peer.name.encode())
    for peer in peers:
        for other in peers:
            if other is not peer:
                peer.heard(other.name, b"from " + other.name.encode())


def test_arrays_travel_in_both_directions_at_once(world):
    first, second = world.start(2)
    first.linked("p1")
    second.linked("p0")
    sent = [np.random.default_rng(k).integers(0, 255, 30_000_000, dtype=np.uint8) for k in range(2)]
    got = [np.zeros_like(array) for array in sent]
    threads = [
        threading.Thread(target=first.send_array, args=("p1", b"there", sent[0])),
        threading.Thread(target=second.send_array, args=("p0", b"back", sent[1])),
    ]
    for thread in threads:
        thread.start()
    first.receive_array("p1", b"back", got[1])
    second.receive_array("p0", b"there", got[0])
    for thread in threads:
        thread.join(60)
    np.testing.assert_array_equal(sent[0], got[0])
    np.testing.assert_array_equal(sent[1], got[1])


def test_a_stopped_peer_is_a_lost_link_and_comes_back(world):
    first, second = world.start(2)
    first.linked("p1")
    second.links.close()
    first.until(lambda: first.all_of(LinkDown), "lost link")
    assert not first.links.send("p1", b"x")
    with pytest.raises(PeerLostError, match="no link to p1"):
        first.links.open("p1", b"key")
    again = world.peer("p1", world.roster(["p0", "p1"]))
    again.linked("p0")
    first.until(lambda: len(first.all_of(LinkUp)) == 2, "new link")


def test_when_both_dial_at_once_one_connection_survives_on_both_sides(world, monkeypatch):
    monkeypatch.setattr(pursuit, "POLITENESS", 0.0)
    for _ in range(5):
        first, second = world.start(2)
        first.linked("p1")
        second.linked("p0")
        ends = [peer.links.links[other] for peer, other in ((first, "p1"), (second, "p0"))]
        names = [(end._sock.getsockname(), end._sock.getpeername()) for end in ends]
        assert names[0] == names[1][::-1]
        assert first.links.send("p1", b"hello")
        second.heard("p0", b"hello")
        world.close()


def test_a_direct_way_replaces_a_relayed_one(world, monkeypatch):
    monkeypatch.setattr(pursuit, "RELAYED_PAUSE", 0.5)
    relays = [world.relay("relay-a")]
    roster = world.roster(["p0", "p1"])
    first, second = (world.peer(name, roster, listen=None, relays=relays) for name in ("p0", "p1"))
    first.linked("p1", through="relay-a")
    second.links.close()
    second = world.peer("p1", roster, relays=relays)
    first.until(lambda: first.links.reaches()["p1"] == Reach(True), "direct link")
    second.linked("p0")


def test_nothing_is_left_behind_after_many_links(world):
    (first,) = [world.peer("p0", world.roster(["p0", "p1"]))]
    before = None
    for turn in range(12):
        second = world.peer("p1", world.roster(["p0", "p1"]))
        second.linked("p0")
        first.until(lambda turn=turn: len(first.all_of(LinkUp)) > turn, "link")
        second.links.close()
        first.until(lambda turn=turn: len(first.all_of(LinkDown)) > turn, "lost link")
        if turn == 4:
            before = (threading.active_count(), len(os.listdir("/proc/self/fd")))
    first.until(lambda: threading.active_count() <= before[0], "end of threads")
    first.until(lambda: len(os.listdir("/proc/self/fd")) <= before[1] + 1, "closed descriptors")
    first.until(lambda: not first.links.connections, "end of connections")


def test_streams_that_are_over_are_not_remembered(world):
    first, second = world.start(2)
    first.linked("p1")
    second.linked("p0")
    for turn in range(20):
        key, got = b"%d" % turn, np.zeros(10, dtype=np.uint8)
        sender = threading.Thread(target=first.send_array, args=("p1", key, np.full(10, turn, dtype=np.uint8)))
        sender.start()
        second.receive_array("p0", key, got)
        sender.join(60)
        second.links.forget("p0", key)
        assert got[0] == turn
    assert not second.links._forgotten
    assert not second.links._inlets


def test_a_stream_that_is_forgotten_before_it_is_opened_is_remembered_until_then(world):
    first, second = world.start(2)
    first.linked("p1")
    second.linked("p0")
    second.links.accept("p0", b"key", One(memoryview(bytearray(10))))
    second.links.forget("p0", b"key")
    assert list(second.links._forgotten) == [("p0", b"key")]
    with pytest.raises(PeerLostError, match="the receiver has stopped it"):
        first.send_array("p1", b"key", np.zeros(10, dtype=np.uint8))
    second.until(lambda: not second.links._forgotten, "end of the memory")


def test_why_a_peer_is_missing_is_told_as_it_is_now(world):
    """It did not fit once, was linked then, and stops now: nobody looks for a key that does not fit."""
    strict = [world.member("p0"), replace(world.member("p1", ""), fingerprint="0" * 64)]
    (first,) = [world.peer("p0", strict)]
    second = world.peer("p1", world.roster(["p0", "p1"], silent=["p1"]))
    second.until(lambda: second.links.reaches()["p0"].unfit, "refusal")
    assert "hung up" in second.links.reaches()["p0"].reason
    first.links.update(roster=world.roster(["p0", "p1"], silent=["p1"]))
    second.linked("p0")
    first.linked("p1")
    second.links.close()
    first.until(lambda: first.all_of(LinkDown), "lost link")
    found = first.links.reaches()["p1"]
    assert (found.linked, found.unfit) == (False, False)
    assert "stopping" in found.reason


def test_a_peer_whose_key_left_the_roster_does_not_fit(world):
    first, second = world.start(2)
    first.linked("p1")
    first.links.update(roster=[world.member("p0"), replace(world.member("p1"), fingerprint="0" * 64)])
    second.until(lambda: second.links.reaches()["p0"].unfit, "refusal")
    first.until(lambda: first.links.reaches()["p1"].unfit, "refusal")
    first.links.update(roster=[world.member("p0")])
    first.until(lambda: not first.links.reaches(), "shorter roster")
    with pytest.raises(PeerLostError, match="there is no link to p1"):
        first.links.open("p1", b"key")
