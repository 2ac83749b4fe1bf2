"""Who takes part, who is waited for and when waiting ends: the rules by themselves, without a network or a clock."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from securedfl.network.core import session as sessions
from securedfl.network.core.board import Status
from securedfl.network.core.members import Gathering
from securedfl.network.core.rules import Deadlines, Rules, RunEndedError
from securedfl.network.core.session import Session
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.tls import Member
from tests.network.peer_processes import free_ports

ROUND, N = 4, 5
RULES = Rules(
    protocol=lambda *_: None,
    size=1,
    dtype="float32",
    can_lose=True,
    least=3,
    deadlines=Deadlines(train=100, absent=50),
)
FIXED = Rules(protocol=lambda *_: None, size=1, dtype="float32", least=N, deadlines=Deadlines(train=100, absent=50))


def gathering(phases, rules, bound=()):
    """A gathering of peer 0 with what the board says: a phase per peer, None for one that is gone."""
    statuses = {k: Status(phase=phase or "ready", round=ROUND) for k, phase in enumerate(phases)}
    board = SimpleNamespace(status=statuses.get, present=lambda k: phases[k] is not None)
    roster = [Member(f"p{k}", "127.0.0.1", 1) for k in range(N)]
    endpoint = SimpleNamespace(me=0, roster=roster, call_all=lambda peers, *_a, **_k: {peer: {} for peer in peers})
    decisions = SimpleNamespace(bound=lambda *_: bound)
    return Gathering(endpoint, board, rules, decisions)


READY, TRAINS, SHARES, GONE = "ready", "training", "shared", None


@pytest.mark.parametrize(
    ("rules", "phases", "waited", "members", "end"),
    [
        (RULES, [READY] * 5, 0, (0, 1, 2, 3, 4), None),
        (RULES, [READY, READY, READY, READY, GONE], 0.5, None, None),  # a heartbeat may be late
        (RULES, [READY, READY, READY, READY, GONE], 2, (0, 1, 2, 3), None),
        (RULES, [READY, READY, READY, TRAINS, GONE], 99, None, None),  # those that train are waited for
        (RULES, [READY, READY, READY, TRAINS, GONE], 101, (0, 1, 2), None),
        (RULES, [READY, READY, TRAINS, TRAINS, GONE], 60, None, None),  # gone for long, but enough are there
        (RULES, [READY, READY, TRAINS, TRAINS, GONE], 101, None, "fail"),
        (RULES, [READY, READY, GONE, GONE, GONE], 49, None, None),
        (RULES, [READY, READY, GONE, GONE, GONE], 51, None, "fail"),
        (RULES, [READY, SHARES, SHARES, SHARES, GONE], 500, None, None),  # the others are about to decide
        (RULES, [READY, SHARES, SHARES, TRAINS, TRAINS], 500, None, None),
        (FIXED, [READY] * 5, 0, (0, 1, 2, 3, 4), None),
        (FIXED, [READY, READY, READY, READY, GONE], 49, None, None),
        (FIXED, [READY, READY, READY, READY, GONE], 51, None, "fail"),
        (FIXED, [READY, READY, READY, READY, TRAINS], 51, None, None),
        (FIXED, [READY, READY, READY, READY, TRAINS], 101, None, "fail"),
    ],
)
def test_who_takes_part_and_when_waiting_ends(rules, phases, waited, members, end):
    found = gathering(phases, rules)
    attempt = found.look(ROUND, 0, waited)
    assert (attempt and attempt[1]) == members
    assert (found.end and found.end["kind"]) == end


@pytest.mark.parametrize(
    ("phases", "waited", "members", "end"),
    [
        ([READY, READY, READY, READY, GONE], 2, None, None),  # another sum would permit differencing
        ([READY, READY, READY, READY, GONE], 51, None, "void"),
        ([READY, READY, READY, READY, READY], 0, (0, 1, 2, 3, 4), None),
    ],
)
def test_after_an_abandoned_commit_only_the_same_members_try_again(phases, waited, members, end):
    found = gathering(phases, RULES, bound=(0, 1, 2, 3, 4))
    found._board.status = lambda k: Status(phase=phases[k] or "ready", round=ROUND, epoch=1)
    attempt = found.look(ROUND, 1, waited)
    assert (attempt and attempt[1]) == members
    assert (found.end and found.end["kind"]) == end


@pytest.mark.parametrize(
    ("phase", "round", "attempt", "heard", "unfinished"),
    [
        ("training", ROUND, -1, False, True),  # it shared, so that this is old news
        ("done", ROUND - 1, 3, False, True),
        ("training", ROUND, -1, True, False),  # it was killed and started again
        ("ready", ROUND, 4, True, True),  # it has not noticed yet
        ("ready", ROUND, 5, False, False),  # it has given this attempt up
        ("finishing", ROUND, 5, False, True),
        ("have", ROUND, 5, False, False),
    ],
)
def test_nobody_is_given_up_on_old_news(phase, round, attempt, heard, unfinished):
    """Who may still get the result of the attempt 5 that was committed to, as far as peer 0 knows about peer 1."""
    status = Status(phase=phase, round=round, attempt=attempt)
    mine = Status(phase="have", round=ROUND, attempt=5)
    board = SimpleNamespace(
        status=lambda k: status if k else mine,
        present=lambda _k: True,
        heard=lambda k, since: k == 0 or heard or since < 10,
    )
    decisions = SimpleNamespace(attempt=lambda *_: 5, members=lambda *_: (0, 1))
    endpoint = SimpleNamespace(me=0, roster=[Member(f"p{k}", "127.0.0.1", 1) for k in range(N)])
    found = Gathering(endpoint, board, RULES, decisions).unfinished(ROUND, 0, 10.0)
    assert found == ([1] if unfinished else [])


@pytest.mark.parametrize("kind", ["fail", "void"])
def test_a_peer_in_an_attempt_obeys_what_the_others_decided(monkeypatch, kind):
    """The roster ended the round while this peer was in an attempt: it ends it too, in the same words."""
    roster = [Member(f"p{k}", "127.0.0.1", port) for k, port in enumerate(free_ports(3))]
    endpoint = Endpoint(roster, 0, None, insecure=True)
    rules = Rules(protocol=lambda *_: None, size=3, dtype="float32", can_lose=True)
    session = Session(endpoint, b"r" * 16, rules, identity={})
    session.results.stage(0, 0, np.arange(3, dtype=np.float32))
    session.results.confirm()

    def decided_meanwhile(*_args):
        value = {"kind": kind, "reason": "p2 did not come back in time"}
        session.acceptor.learn("commit/1/0", json.dumps(value))
        raise sessions._MovedError

    monkeypatch.setattr(session, "_await_offer", lambda *_: (0, (0, 1, 2)))
    monkeypatch.setattr(session, "_attempt", decided_meanwhile)
    try:
        if kind == "fail":
            with pytest.raises(RunEndedError, match="round 1 on all peers: p2 did not come back in time"):
                session.average(np.zeros(3, dtype=np.float32), 1)
        else:
            outcome = session.average(np.zeros(3, dtype=np.float32), 1)
            assert outcome.void
            np.testing.assert_array_equal(outcome.vector, [0, 1, 2])
    finally:
        session.close()


def test_no_end_is_approved_while_an_attempt_may_succeed():
    roster = [Member(f"p{k}", "127.0.0.1", port) for k, port in enumerate(free_ports(3))]
    rules = Rules(protocol=lambda *_: None, size=3, dtype="float32", can_lose=True)
    session = Session(Endpoint(roster, 0, None, insecure=True), b"r" * 16, rules, identity={})
    try:
        fail = {"kind": "fail", "reason": ""}
        session.board.say(phase="shared", round=1, epoch=0, attempt=3)
        assert not session._approve("commit/1/0", fail)
        assert session._approve("commit/1/0", {"kind": "members", "attempt": 3, "members": [0, 1, 2]})
        assert not session._approve("commit/1/0", {"kind": "members", "attempt": 2, "members": [0, 1, 2]})
        session.board.say(phase="ready")
        assert session._approve("commit/1/0", fail)
        assert not session._approve("commit/1/0", "noise")
    finally:
        session.close()
