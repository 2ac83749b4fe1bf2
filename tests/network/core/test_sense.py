"""What makes sense to a peer, from what it sees."""

from __future__ import annotations

import pytest

from securedfl.network.core.entries import Begin, Line, Remove, Settings, Without
from securedfl.network.core.messages import Status
from securedfl.network.core.sense import Sense
from securedfl.network.core.state import Rules, State
from securedfl.network.core.views import Views

ROSTER = tuple(Line(k, f"p{k}", f"h{k}:1", b"key%d" % k, f"folder {k}") for k in range(6))


def test_a_peer_is_removed_only_while_those_left_can_decide_without_it():
    """Else nobody could admit those who lost their disks, and all would wait for ever (seed 1091635)."""
    state = State("run", ROSTER, Settings(rounds=2), length=1)
    views = Views(0, state, lying=1, now=0.0)
    sense = Sense(Rules(lying=1), views)
    for peer in (0, 1, 2, 4):
        views.take(Status(peer, f"folder {peer}", 1, 1, asks=Remove(4)))
    # of five voters four decide, and three of them would be here
    assert not sense.agrees(Remove(4))
    views.take(Status(3, "folder 3", 1, 1))
    assert sense.agrees(Remove(4))
    # one that comes with another folder cannot vote until it is admitted
    views.strangers[3] = (Status(3, "another", 1, 1), 0.0)
    assert not sense.agrees(Remove(4))
    # where nobody lies, three of five decide
    assert Sense(Rules(), views).agrees(Remove(4))


def test_of_two_peers_that_are_apart_the_one_that_more_have_lost_is_left_out():
    """Links to a killed peer end at slightly other times; whose grace is over first must not be blamed for it."""
    members = (0, 1, 2, 3, 4)
    state = State("run", ROSTER[:5], Settings(rounds=2, heartbeat=1.0), length=3, phase="committed", members=members)
    views = Views(0, state, lying=0, now=0.0)
    for peer in members:
        views.take(Status(peer, f"folder {peer}", 1, 3, reaches=members))
    views.now = 1.0
    views.take(Status(4, "folder 4", 2, 3, reaches=(0, 2, 3, 4)))
    views.now = 1.01
    for peer in (0, 2, 3):
        views.take(Status(peer, f"folder {peer}", 2, 3, reaches=(0, 2, 3, 4)))
    views.now = 3.005
    # peer 1 still counts as there, and only its link to peer 4 has been down for longer than the grace
    assert views.apart(members, grace=True) == [(1, 4)]
    assert Sense(Rules(can_lose=True, recoverable=lambda *_: True), views).want() == Without(
        state.round, state.attempt, (1,)
    )


def test_of_two_peers_that_are_apart_from_each_other_alone_the_one_heard_less_lately_is_left_out():
    state = State("run", ROSTER[:3], Settings(rounds=2, heartbeat=1.0), length=3, phase="committed", members=(0, 1, 2))
    views = Views(0, state, lying=0, now=0.0)
    for peer in (0, 1, 2):
        views.take(Status(peer, f"folder {peer}", 1, 3, reaches=(0, 1, 2)))
    views.now = 1.0
    views.take(Status(1, "folder 1", 2, 3, reaches=(0, 1)))
    views.now = 2.0
    views.take(Status(2, "folder 2", 2, 3, reaches=(0, 2)))
    views.now = 3.5
    assert views.apart((0, 1, 2), grace=True) == [(1, 2)]
    assert Sense(Rules(can_lose=True, recoverable=lambda *_: True), views).want() == Without(
        state.round, state.attempt, (1,)
    )


def test_two_killed_peers_take_nobody_along_who_told_of_it_first():
    members = tuple(range(9))
    roster = tuple(Line(k, f"p{k}", f"h{k}:1", b"key%d" % k, f"folder {k}") for k in members)
    state = State("run", roster, Settings(rounds=2, heartbeat=1.0), length=3, phase="committed", members=members)
    views = Views(0, state, lying=0, now=0.0)
    for peer in members:
        views.take(Status(peer, f"folder {peer}", 1, 3, reaches=members))
    alive = tuple(peer for peer in members if peer not in (1, 2))
    for views.now, told in ((1.0, (4,)), (1.01, alive)):
        for peer in told:
            views.take(Status(peer, f"folder {peer}", 2, 3, reaches=alive))
    views.now = 3.005
    assert set(views.apart(members, grace=True)) <= {(1, 4), (2, 4), (1, 2)}
    assert Sense(Rules(can_lose=True, recoverable=lambda *_: True), views).want() == Without(0, 0, (1, 2))


def test_a_liar_does_not_get_another_peer_left_out_by_saying_that_it_hears_a_dead_one():
    """Who is not there tells nothing about those who are."""
    members = (0, 1, 2, 3, 4)
    views = Views(0, State("run", ROSTER[:5], Settings(rounds=2, heartbeat=1.0), length=3), lying=1, now=0.0)
    for peer in members:
        views.take(Status(peer, f"folder {peer}", 1, 3, reaches=members, ready=0))
    for sequence, views.now in ((2, 20.0), (3, 22.5)):
        for peer in (0, 1, 2):
            views.take(Status(peer, f"folder {peer}", sequence, 3, reaches=(0, 1, 2, 4), ready=0))
        # peer 3 is dead; peer 4 says that it hears it, and that it does not hear peer 2
        views.take(Status(4, "folder 4", sequence, 3, reaches=(0, 1, 3, 4), ready=0))
    assert views.cover(views.apart((0, 1, 2, 4), grace=True)) == [4]


def test_of_two_halves_between_which_all_links_are_down_one_is_left_out():
    """Of many peers: to count every pair for every peer would take half a minute."""
    n = 200
    roster = tuple(Line(k, f"p{k}", f"h{k}:1", b"key%d" % k, f"folder {k}") for k in range(n))
    views = Views(0, State("run", roster, Settings(rounds=2, heartbeat=1.0), length=3), lying=0, now=0.0)
    for peer in range(n):
        views.take(Status(peer, f"folder {peer}", 1, 3, reaches=tuple(range(peer % 2, n, 2))))
    assert sorted(views.cover(views.apart(range(n), grace=False))) == list(range(1, n, 2))


def test_nobody_is_left_out_who_hears_all_that_are_left():
    """Peer 1 is apart from late ones and from peer 2; once peer 2 is left out, nothing speaks against it."""
    n, late, down = 11, (5, 6, 7), {(1, 2), (2, 3), (1, 5), (1, 6), (1, 7), (2, 5)}
    roster = tuple(Line(k, f"p{k}", f"h{k}:1", b"key%d" % k, f"folder {k}") for k in range(n))
    views = Views(0, State("run", roster, Settings(rounds=2, heartbeat=1.0, train=5.0), length=3), lying=0, now=0.0)
    for sequence in range(1, 13):
        views.now = float(sequence - 1)
        for peer in range(n):
            hears = [k for k in range(n) if (min(k, peer), max(k, peer)) not in down or sequence == 1]
            ready = -1 if peer in late else 0
            views.take(Status(peer, f"folder {peer}", sequence, 3, reaches=tuple(hears), ready=ready))
    assert Sense(Rules(can_lose=True), views).want() == Begin(0, 0, (0, 1, 3, 4, 8, 9, 10))


@pytest.mark.parametrize(
    ("everybody", "liar", "victim"),
    [
        ((0, 1, 2, 3, 4), 1, 4),
        (tuple(range(9)), 3, 4),
        (tuple(range(9)), 8, 0),
        ((0, 1, 2, 3, 5), 0, 5),
        ((0, 1, 2, 6), 2, 6),
    ],
)
def test_a_liar_that_says_it_does_not_hear_a_peer_is_left_out_as_often_as_that_peer(everybody, liar, victim):
    """Nobody can tell which of the two lies; numbers have gaps where peers have left."""
    left_out = []
    roster = tuple(Line(k, f"p{k}", f"h{k}:1", b"key", f"folder {k}") for k in everybody)
    for round in range(10):
        state = State("run", roster, Settings(rounds=20, heartbeat=1.0), length=3, round=round)
        views = Views(everybody[1], state, lying=1, now=0.0)
        for sequence in range(1, 9):
            views.now = float(sequence - 1)
            for peer in everybody:
                hears = tuple(other for other in everybody if other != victim) if peer == liar else everybody
                views.take(Status(peer, f"folder {peer}", sequence, 3, reaches=hears, ready=round))
        begin = Sense(Rules(can_lose=True, lying=1), views).want()
        left_out += set(everybody).difference(begin.members)
    assert sorted(left_out) == sorted([liar, victim] * 5)
