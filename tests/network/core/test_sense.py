"""What makes sense to a peer, from what it sees."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from securedfl.network.core.entries import Abandon, Begin, Commit, Done, End, Line, Remove, Settings, Without
from securedfl.network.core.messages import NO_RESULT, Decided, Failure, Result, Status
from securedfl.network.core.sense import Sense
from securedfl.network.core.state import Rules, State
from securedfl.network.core.views import TRIES, Views

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


def test_liars_together_leave_nobody_out_for_good():
    """Both of two liars among seven say that they do not hear peer 0; nobody can tell who of the three lies."""
    everybody, left_out = tuple(range(7)), list[set[int]]()
    roster = (*ROSTER, Line(6, "p6", "h6:1", b"key6", "folder 6"))
    for round in range(6):
        state = State("run", roster, Settings(rounds=20, heartbeat=1.0), length=3, round=round)
        views = Views(1, state, lying=2, now=0.0)
        for sequence in range(1, 9):
            views.now = float(sequence - 1)
            for peer in everybody:
                hears = everybody[1:] if peer in (3, 5) else everybody
                views.take(Status(peer, f"folder {peer}", sequence, 3, reaches=hears, ready=round))
        begin = Sense(Rules(can_lose=True, lying=2), views).want()
        left_out.append(set(everybody).difference(begin.members))
    assert all(one in ({0}, {3, 5}) for one in left_out)
    assert left_out.count({3, 5}) >= 2


@pytest.mark.parametrize("lying", [0, 1])
def test_a_peer_that_sends_nothing_and_says_that_all_is_well_is_left_out_in_the_end(lying):
    """Those who waited for it are not to blame."""
    members = (0, 1, 2, 3)
    settings = Settings(rounds=20, heartbeat=1.0)
    views = Views(0, State("run", ROSTER[:4], settings, length=9, attempt=TRIES), lying=lying, now=0.0)
    for peer in members:
        waited = Failure(0, TRIES - 1, (), (3,)) if peer != 3 else Failure(-1, -1)
        views.take(Status(peer, f"folder {peer}", 1, 9, reaches=members, ready=0, failed=waited))
    assert Sense(Rules(can_lose=True, lying=lying), views).want() == Begin(0, TRIES, (0, 1, 2))


def test_of_two_with_a_bad_link_each_waits_for_the_other_and_both_are_left_out():
    members = (0, 1, 2, 3, 4, 5)
    settings = Settings(rounds=20, heartbeat=1.0)
    views = Views(0, State("run", ROSTER[:6], settings, length=9, attempt=TRIES), lying=0, now=0.0)
    for peer in members:
        waited = Failure(0, TRIES - 1, (), (9 - peer,)) if peer in (4, 5) else Failure(-1, -1)
        views.take(Status(peer, f"folder {peer}", 1, 9, reaches=members, ready=0, failed=waited))
    assert Sense(Rules(can_lose=True), views).want() == Begin(0, TRIES, (0, 1, 2, 3))


def test_operators_that_end_the_run_need_not_give_the_same_reason():
    views = Views(0, State("run", ROSTER[:4], Settings(rounds=20), length=3), lying=1, now=0.0)
    for peer, ask in enumerate((None, End("enough"), Remove(2), End("the trial is over"))):
        views.take(Status(peer, f"folder {peer}", 1, 3, reaches=(0, 1, 2, 3), asks=ask))
    assert views.asked() == [End("enough")]


def results(lying: int, *digests: bytes) -> Sense:
    """Return what peer 0 thinks when members say that they have these results of a committed attempt."""
    members = tuple(range(len(digests)))
    settings = Settings(rounds=2, heartbeat=1.0, average=9.0)
    state = State("run", ROSTER[: len(members)], settings, length=3, phase="committed", members=members)
    views = Views(0, state, lying=lying, now=0.0)
    for peer, digest in enumerate(digests):
        held = Result(0, 0, digest) if digest else NO_RESULT
        views.take(Status(peer, f"folder {peer}", 1, 3, reaches=members, ready=0, holds=held))
    return Sense(Rules(can_lose=True, lying=lying), views)


@pytest.mark.parametrize(
    ("lying", "digests", "seconds"),
    [
        (0, (b"a", b"b", b"c"), 3.0),
        (0, (b"a", b"b", b""), 31.0),
        (1, (b"a", b"b", b"b", b"c"), 3.0),
        (1, (b"a", b"b", b"b", b""), 31.0),
        # one of the four says this to some and that to others, and votes for nothing
        (1, (b"a", b"b", b"b", b"b"), 31.0),
    ],
)
def test_an_attempt_ends_in_which_nothing_can_be_agreed_on(lying, digests, seconds):
    """Some were sent other sums than others; who says nothing is waited for, but not for ever."""
    sense = results(lying, *digests)
    views = sense.views
    assert sense.want() in (None, Done(0, 0, b"b"))
    for moment in range(1, int(seconds) + 1):
        views.now = seconds * moment / int(seconds)
        for peer in range(1, len(digests)):
            said = views.status(peer)
            views.take(replace(said, sequence=said.sequence + 1))
        assert (sense.want() == Abandon(0, 0)) == (views.now >= seconds), views.now
    assert sense.agrees(Abandon(0, 0))


def test_what_enough_have_is_agreed_to_by_those_who_came_to_something_else():
    sense = results(1, b"a", b"b", b"b", b"b")
    assert sense.want() == Done(0, 0, b"b")
    assert sense.agrees(Done(0, 0, b"b"))
    assert not sense.agrees(Done(0, 0, b"c"))
    assert sense.views.odd() == (0,)
    assert results(1, b"a", b"b", b"", b"b").agrees(Done(0, 0, b"b"))
    assert not results(1, b"a", b"b", b"", b"").agrees(Done(0, 0, b"b")), "that one may lie"
    assert results(0, b"a", b"b", b"a", b"b").views.odd() == (0, 1, 2, 3)


def test_members_that_have_the_same_result_are_given_time():
    """However long the last one takes, or whoever is gone: it is fetched."""
    for digests in ((b"a", b"a", b""), (b"a", b"a", b"a", b"")):
        sense = results(1, *digests)
        sense.views.now = 3.5
        assert sense.want() != Abandon(0, 0)
        assert sense.views.split() == 0.0


def test_so_few_results_that_all_of_them_may_lie_are_waited_for_no_longer_than_those_that_differ():
    """Two members have the same, and the third says nothing of it, where two may lie."""
    sense = results(2, b"a", b"a", b"")
    assert sense.want() != Abandon(0, 0)
    sense.views.now = sense._long + 0.5
    for peer in (1, 2):
        said = sense.views.status(peer)
        sense.views.take(replace(said, sequence=said.sequence + 1))
    assert sense.want() == Abandon(0, 0)
    # all have told, and that is one too few
    sense = results(2, b"a", b"a")
    sense.views.now = sense.views.grace + 0.5
    assert sense.want() == Abandon(0, 0)
    assert results(1, b"a", b"a").views.split() == 0.0


def test_results_that_were_told_before_there_could_be_any_count_for_nothing_when_all_have_failed():
    """Seed 10008818 of the world: the core ended with an error of Python."""
    views = Views(0, replace(results(1, b"", b"", b"", b"").views.state, phase="begun"), lying=1, now=0.0)
    for peer in range(4):
        early = Result(0, 0, b"%d" % peer) if peer in (1, 2) else NO_RESULT
        views.take(
            Status(peer, f"folder {peer}", 1, 1, reaches=(0, 1, 2, 3), holds=early, failed=Failure(0, 0, peers=(3,)))
        )
    views.follow(Decided(3, Commit(0, 0), ()), replace(views.state, phase="committed", length=4))
    assert views.odd() == (1, 2)
    assert views.split() == 0.0
    views.now = 3.0
    assert Sense(Rules(can_lose=True, lying=1), views).want() is not None


def test_a_wish_to_end_the_run_is_agreed_to_whatever_its_reason():
    """A liar can give another one to each."""
    views = Views(0, State("run", ROSTER[:4], Settings(rounds=20), length=3), lying=1, now=0.0)
    for peer, ask in enumerate((None, End("enough"), None, End("the trial is over"))):
        views.take(Status(peer, f"folder {peer}", 1, 3, reaches=(0, 1, 2, 3), asks=ask))
    sense = Sense(Rules(can_lose=True, lying=1), views)
    assert sense.agrees(End("something else"))
    views.take(Status(1, "folder 1", 2, 3, reaches=(0, 1, 2, 3)))
    assert not sense.agrees(End("something else"))
