"""What people are told of a running peer, and when."""

from __future__ import annotations

import pytest

from securedfl.network.core.entries import Ask, Begin, Commit, End, Entry, Line, Move, Settings
from securedfl.network.core.events import Tell
from securedfl.network.core.messages import Status
from securedfl.network.core.sense import Sense
from securedfl.network.core.state import Rules, State
from securedfl.network.core.telling import MOST_LINES, Telling
from securedfl.network.core.views import Views
from securedfl.network.wire.values import Reach
from securedfl.network.words import UNADMITTED, in_words, is_bad, looked_in_words

ROSTER = tuple(Line(k, f"p{k}", f"h{k}:1", b"key%d" % k, f"folder {k}") for k in range(4))


@pytest.mark.parametrize("what", ["decided", "asked"])
@pytest.mark.parametrize("entry", [End("enough\n\x1b[31mred"), Move(1, "here\r\nX: y:1")])
def test_what_others_write_is_harmless_for_logs_and_screens(what: str, entry: Ask) -> None:
    assert in_words(Tell(what, (1,), entry=entry), ROSTER).isprintable()


def looking(lying: int = 0) -> tuple[Views, Sense]:
    views = Views(0, State("run", ROSTER, Settings(3), length=3), lying=lying, now=0.0)
    return views, Sense(Rules(lying=lying), views)


@pytest.mark.parametrize(("decided", "news"), [(Begin(1, 0, (0, 1, 2)), False), (Commit(1, 0), True)])
def test_that_nobody_is_waited_for_any_more_is_no_news_once_an_attempt_has_begun(decided: Entry, news: bool) -> None:
    """The core looks around once per heartbeat, and by then several rounds may be done."""
    telling, (views, sense) = Telling(), looking()
    telling.look(sense, None)
    assert [tell.what for tell in telling.now] == ["waiting"]
    telling.decided(decided)
    for peer in range(4):
        views.take(Status(peer, f"folder {peer}", 1, 1, ready=0, reaches=tuple(range(4))))
    telling.now = []
    telling.look(sense, None)
    assert [tell for tell in telling.now if tell.what == "waiting"] == ([Tell("waiting")] if news else [])


def test_a_liar_that_wants_something_else_each_time_fills_no_logs() -> None:
    telling, (views, sense) = Telling(), looking(lying=1)
    for sequence in range(3 * MOST_LINES):
        views.take(Status(1, "folder 1", 1, sequence, asks=End(f"reason {sequence}")))
        telling.look(sense, None)
    assert sum(tell.what == "asked" for tell in telling.now) == MOST_LINES


def averaging(
    members: tuple[int, ...], now: float = 0.0, me: int = 0, rules: Rules | None = None
) -> tuple[Views, Sense]:
    """Return what a peer sees of a round that has begun with these members, and that all four are there."""
    state = State("run", ROSTER, Settings(3, train=10.0), length=3, phase="begun", members=members)
    views = Views(me, state, lying=0, now=0.0)
    views.now = now
    for peer in range(4):
        views.take(Status(peer, f"folder {peer}", 1, 1, ready=0 if peer < 3 else -1, reaches=tuple(range(4))))
    return views, Sense(rules or Rules(), views)


def test_who_still_trains_where_most_are_done_is_told_after_a_while() -> None:
    telling, (views, sense) = Telling(), averaging((0, 1, 2, 3))
    telling.look(sense, None)
    assert not telling.now
    views.now = 5.0
    for peer in range(4):
        views._heard[peer] = 5.0
    telling.look(sense, None)
    (told,) = telling.now
    assert in_words(told, ROSTER) == "waiting: peers that still train, for which they have `train` = 10 s (p3)"
    telling.look(sense, None)
    assert telling.now == [told]


def test_who_was_not_ready_in_time_is_told_everywhere() -> None:
    for me in (0, 3):
        telling, (views, sense) = Telling(), averaging((0, 1, 2), me=me)
        views.now = 11.0
        for peer in range(4):
            views._heard[peer] = 11.0
        telling.look(sense, None)
        (late,) = [tell for tell in telling.now if tell.what == "late"]
        assert is_bad(late)
        assert in_words(late, ROSTER).startswith("round 0 goes on without p3, which was not ready within `train`")


def test_a_peer_that_the_rules_leave_out_is_told_so() -> None:
    rules = Rules(pick=lambda _state, peers: tuple(peer for peer in peers if peer < 3))
    for me, out in ((0, False), (3, True)):
        telling, (_, sense) = Telling(), averaging((0, 1, 2), me=me, rules=rules)
        telling.look(sense, None)
        assert [tell.what for tell in telling.now if tell.what == "left out"] == ["left out"] * out


def test_pairs_that_do_not_hear_each_other_are_told_by_the_one_that_hears_nobody() -> None:
    views, sense = looking()
    for peer in range(4):
        hears = (3,) if peer == 3 else (0, 1, 2)
        views.take(Status(peer, f"folder {peer}", 1, 1, reaches=hears))
    assert sense.waiting() == ("peers that do not hear all others", (3,))


def test_it_is_told_how_many_must_take_part() -> None:
    views, _ = looking()
    for peer in range(3):
        views.take(Status(peer, f"folder {peer}", 1, 1, reaches=(0, 1, 2)))
    sense = Sense(Rules(pick=lambda _state, peers: peers[:2]), views)
    assert sense.waiting() == ("peers that are missing; 3 must take part, and 2 can without them", (3,))


def test_who_waits_to_be_admitted_is_told_with_how_many_can_do_that() -> None:
    roster = (*ROSTER, Line(4, "p4", "h4:1", b"key4", "folder 4"))
    reaches = {"p1": Reach(True), **{f"p{k}": Reach(False, None, f"it {UNADMITTED}") for k in (2, 3, 4)}}
    text = looked_in_words(reaches, {0: Status(0, "folder 0", 1, 1)}, roster)
    assert "no link to p2: it came with a new state folder, and waits to be admitted" in text
    assert "this site came" not in text
    assert "at least 3 of 5 peers must be there to admit anybody, and only 2 are: " in text
    # at one of those that wait
    own = {0: Status(0, "another folder", 1, 1)}
    text = looked_in_words(reaches, own, roster)
    assert "; this site came with a new state folder, and waits to be admitted; " in text
    assert "and only 1 is: start the others with the state folders that they had; if those are lost, this run" in text
    there = {f"p{k}": Reach(True) for k in (1, 2, 3, 4)}
    assert looked_in_words(there, own, roster).endswith(
        "at least 3 of 5 peers must be there to admit anybody, and 4 are"
    )
    assert "admit" not in looked_in_words(there, {}, roster)


def test_what_those_said_last_from_whom_nothing_is_heard_is_not_repeated() -> None:
    reaches = {"p1": Reach(True), "p2": Reach(False, None, "connection refused")}
    statuses = {peer: Status(peer, f"folder {peer}", 1, 1, reaches=(0, 3)) for peer in (1, 2)}
    text = looked_in_words(reaches, statuses, ROSTER)
    assert "p1 hears p0, p3" in text
    assert "p2 hears" not in text
