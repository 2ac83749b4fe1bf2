"""Consensus: one value per question, whatever messages are lost, whoever proposes, and after restarts."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from functools import partial

import pytest

from securedfl.errors import PeerLostError, RunFolderError
from securedfl.network.core.consensus import Acceptor, propose
from securedfl.network.wire.frames import FrameError


def race(acceptors, proposals, call, seconds=3.0):
    """Let several peers propose at once; return what each learned."""
    learned = {}

    def ask_others(me, message):
        answers = []
        for peer in range(len(acceptors)):
            with suppress(PeerLostError):
                answers += [call(peer, message)] if peer != me else []
        return answers

    def work(peer, value):
        learned[peer] = propose(
            "q",
            value,
            me=peer,
            n=len(acceptors),
            acceptor=acceptors[peer],
            ask_others=partial(ask_others, peer),
            deadline=time.monotonic() + seconds,
        )

    threads = [threading.Thread(target=work, args=item) for item in proposals.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return learned


@pytest.mark.parametrize("seed", range(8))
def test_duelling_proposers_over_a_lossy_network_agree(seed):
    acceptors = [Acceptor(None) for _ in range(5)]
    chance, lock = random.Random(seed), threading.Lock()

    def call(peer, message):
        with lock:
            lost_question, lost_answer = chance.random() < 0.2, chance.random() < 0.2
        if lost_question:
            raise PeerLostError("lost")
        answer = acceptors[peer].answer(message)
        if lost_answer:
            raise PeerLostError("lost")
        return answer

    learned = race(acceptors, {0: "a", 2: "b", 4: "c"}, call)
    decided = {acceptor.decided("q") for acceptor in acceptors} - {None}
    assert len(decided | set(learned.values()) - {None}) == 1


def test_a_minority_decides_nothing():
    acceptors = [Acceptor(None) for _ in range(5)]

    def call(peer, message):
        if peer > 1:
            raise PeerLostError("cut off")
        return acceptors[peer].answer(message)

    assert race(acceptors, {0: "a"}, call, seconds=0.3) == {0: None}
    assert all(acceptor.decided("q") is None for acceptor in acceptors)


def test_what_may_have_been_decided_cannot_be_refused():
    """A majority accepted "a" and then changed its mind about it: it must still be learned, not argued about."""
    acceptors = [Acceptor(None) for _ in range(3)]
    for acceptor in acceptors[:2]:
        acceptor.answer({"kind": "prepare", "key": "q", "ballot": 0})
        acceptor.answer({"kind": "accept", "key": "q", "ballot": 0, "value": '"a"'})
    for acceptor in acceptors:
        acceptor.approve = lambda _key, value: value != "a"
    learned = race(acceptors, {2: "b"}, lambda peer, message: acceptors[peer].answer(message))
    assert learned == {2: "a"}


def test_peer_0_need_not_ask_before_the_first_vote():
    acceptors, kinds = [Acceptor(None) for _ in range(3)], []

    def call(peer, message):
        kinds.append(message["kind"])
        return acceptors[peer].answer(message)

    assert race(acceptors, {0: "a"}, call) == {0: "a"}
    assert kinds == ["accept"] * 2 + ["decide"] * 2
    assert all(acceptor.decided("q") == "a" for acceptor in acceptors)


@pytest.mark.parametrize("heard", [0, 1, 2])
def test_peer_0_votes_only_once_without_asking(tmp_path, heard):
    """Killed in the middle of its first vote, which ``heard`` others got, it must not vote for "b" without asking."""
    acceptors = [Acceptor(tmp_path / "journal.jsonl"), *(Acceptor(None) for _ in range(4))]

    def killed(peer, message):
        if peer > heard:
            raise KeyboardInterrupt
        return acceptors[peer].answer(message)

    with suppress(KeyboardInterrupt):
        propose(
            "q",
            "a",
            me=0,
            n=5,
            acceptor=acceptors[0],
            ask_others=lambda message: [killed(peer, message) for peer in range(1, 5)],
            deadline=time.monotonic(),
        )
    acceptors[0].close()
    acceptors[0] = Acceptor(tmp_path / "journal.jsonl")
    assert not acceptors[0].untouched("q")
    learned = race(acceptors, {0: "b"}, lambda peer, message: acceptors[peer].answer(message))
    assert learned == {0: "a"}  # what it had accepted itself is what it hears first when it asks
    acceptors[0].close()


def test_peer_0_tells_nobody_of_a_vote_that_it_does_not_give_itself():
    acceptors = [Acceptor(None, approve=lambda _key, value: value == "b"), Acceptor(None), Acceptor(None)]
    heard = []

    def call(peer, message):
        heard.append((message["kind"], message.get("ballot")))
        return acceptors[peer].answer(message)

    race(acceptors, {0: "a"}, call, seconds=0)
    assert ("accept", 0) not in heard


def test_a_killed_peer_does_not_forget_its_word(tmp_path):
    path = tmp_path / "journal.jsonl"
    acceptor = Acceptor(path)
    assert acceptor.answer({"kind": "prepare", "key": "q", "ballot": 7})["ok"]
    assert acceptor.answer({"kind": "accept", "key": "q", "ballot": 7, "value": '"a"'})["ok"]
    with path.open("a") as file:
        file.write('{"key": "q", "promi')  # cut short by a kill
    again = Acceptor(path)
    assert not again.answer({"kind": "prepare", "key": "q", "ballot": 6})["ok"]
    reply = again.answer({"kind": "prepare", "key": "q", "ballot": 8})
    assert (reply["ok"], reply["ballot"], reply["value"]) == (True, 7, '"a"')
    again.learn("q", '"a"')
    third = Acceptor(path)
    assert third.decided("q") == "a"
    third.close()
    text = path.read_text()
    path.write_text("damage\n" + text)
    with pytest.raises(RunFolderError, match="line 1"):
        Acceptor(path)
    acceptor.close()
    again.close()


def test_refusal_and_malformed_messages():
    acceptor = Acceptor(None, approve=lambda _key, value: value != "bad")
    acceptor.answer({"kind": "prepare", "key": "q", "ballot": 1})
    assert not acceptor.answer({"kind": "accept", "key": "q", "ballot": 1, "value": '"bad"'})["ok"]
    assert acceptor.answer({"kind": "accept", "key": "q", "ballot": 1, "value": '"good"'})["ok"]
    for message in (
        {},
        {"kind": "prepare"},
        {"kind": "prepare", "key": 7},
        {"kind": "prepare", "key": "p", "ballot": "1"},
        {"kind": "accept", "key": "p", "ballot": 1},
        {"kind": "decide", "key": "p", "value": None},
    ):
        with pytest.raises(FrameError):
            acceptor.answer(message)
