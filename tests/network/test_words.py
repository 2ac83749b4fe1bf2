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
from securedfl.network.words import in_words

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
