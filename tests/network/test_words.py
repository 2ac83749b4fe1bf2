"""What people are told of a running peer, and when."""

from __future__ import annotations

from securedfl.network.core.entries import Begin, Commit
from securedfl.network.core.events import Tell
from securedfl.network.words import Waits

WAITS, OVER = Tell("waiting", (1, 2), "peers that are missing"), Tell("waiting")
BEGINS, COMMITS = Tell("decided", entry=Begin(1, 0, (0, 1, 2))), Tell("decided", entry=Commit(1, 0))


def told(*tells: Tell) -> list[Tell]:
    waits = Waits()
    return [tell for tell in tells if waits.news(tell)]


def test_that_nobody_is_waited_for_any_more_is_no_news_once_an_attempt_has_begun() -> None:
    """The core looks around once per heartbeat, and by then several rounds may be done."""
    assert told(WAITS, BEGINS, COMMITS, OVER) == [WAITS, BEGINS, COMMITS]
    assert told(WAITS, COMMITS, OVER, OVER, BEGINS, WAITS) == [WAITS, COMMITS, OVER, BEGINS, WAITS]
