"""The board: who is told what at once, what is known about whom, and since when."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from securedfl.network import memory
from securedfl.network.core.board import Board, Status, status_message


@pytest.fixture
def board():
    """The board of peer 2 of three, without heartbeats."""
    return Board(SimpleNamespace(me=2, roster=[None] * 3))


@pytest.mark.parametrize(("to", "woken"), [(None, {0, 1}), ([1], {1}), ([], set()), ([0, 2], {0})])
def test_only_those_named_are_told_at_once(board, to, woken):
    board.say(to=to, phase="ready", round=4)
    assert {peer for peer, event in board._wake.items() if event.is_set()} == woken
    assert board.status(2).phase == "ready"
    assert board.told()["round"] == 4  # and whoever calls is told, too


def test_the_first_that_is_there_and_when_it_was_heard_of(board):
    assert board.first([0, 1]) == []
    for peer in (0, 1):
        board.hear(peer, status_message(Status(phase="training", round=3)))
    assert board.first(range(3)) == [0]
    assert board.first([1, 2]) == [1]
    seen = board.entry(0).seen
    assert board.heard(0, seen)
    assert not board.heard(0, seen + 1)
    assert board.heard(2, seen + 1)  # what a peer knows about itself is never old
    board.hear(0, status_message(Status(phase="left", reason="for a test")))
    assert board.first(range(3)) == [1]


def test_one_heap_is_asked_for_where_there_is_such_a_thing(monkeypatch):
    asked = []
    library = SimpleNamespace(mallopt=lambda *pair: asked.append(pair))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _name: library)
    memory.share_one_heap()
    assert (-8, 1) in asked
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _name: object())
    memory.share_one_heap()  # another C library
