"""The core alone: what it writes before it speaks, what it refuses, how it comes back."""

from __future__ import annotations

import random

import pytest

from securedfl.errors import RunFolderError
from securedfl.network.core import events as ev
from securedfl.network.core import proofs
from securedfl.network.core.core import Core
from securedfl.network.core.entries import End, Line, Move, Remove, Settings, Try
from securedfl.network.core.messages import (
    Boot,
    Decided,
    Gossip,
    Promise,
    Result,
    Status,
    Stored,
    Vote,
    decode,
    decode_record,
    encode,
)
from securedfl.network.core.state import Rules, State

GENESIS = State("run", tuple(Line(k, f"p{k}", f"h{k}:1", b"key%d" % k) for k in range(3)), Settings(rounds=2))


class Signer:
    def __init__(self, own: bytes) -> None:
        self.own = own

    def owns(self, key: bytes) -> bool:
        return key == self.own

    def sign(self, data: bytes) -> bytes:
        return b"signed by " + self.own

    def verify(self, key: bytes, data: bytes, signature: bytes) -> bool:
        return signature == b"signed by " + key


def core(me: int, records=(), incarnation: str = "") -> Core:
    return Core(
        Stored().add(*records),
        me=me,
        genesis=GENESIS,
        rules=Rules(),
        signer=Signer(b"key%d" % me),
        incarnation=incarnation or f"folder {me}",
        now=0.0,
    )


class Three:
    """Three peers with perfect links, and what each wrote."""

    def __init__(self) -> None:
        self.cores = [core(k) for k in range(3)]
        self.records = [[], [], []]
        self.done = []
        for k in range(3):
            for other in range(3):
                if other != k:
                    self.happen(k, ev.Link(other))

    def happen(self, k: int, event, now: float = 0.0) -> None:
        todo = [(k, event)]
        while todo:
            me, event = todo.pop(0)
            for action in self.cores[me].step(event, now):
                if isinstance(action, ev.Write):
                    self.records[me].append(action.record)
                elif isinstance(action, ev.Send):
                    todo += [(peer, ev.Received(me, action.message)) for peer in action.peers]
                else:
                    self.done.append((me, action))


def test_three_peers_begin_as_soon_as_they_hear_each_other():
    three = Three()
    assert [one.state.phase for one in three.cores] == ["begun"] * 3
    assert [one.log[1].entry.members for one in three.cores] == [(0, 1, 2)] * 3
    assert (0, ev.Train(0)) in three.done


def test_a_round_among_three():
    three = Three()
    for k in range(3):
        three.happen(k, ev.Update(0))
        assert (k, ev.Share(Try(0, 0), (0, 1, 2))) in three.done
    for k in range(3):
        assert not any(isinstance(action, ev.Open) for _, action in three.done)
        three.happen(k, ev.Shared(Try(0, 0)))
    assert {k for k, action in three.done if isinstance(action, ev.Open)} == {0, 1, 2}
    three.happen(0, Result(0, 0, b"digest"))
    three.happen(1, Result(0, 0, b"digest"))
    assert {k for k, action in three.done if action == ev.Apply(Result(0, 0, b"digest"))} == {0, 1}
    # peer 2 is told to get it once its own part had its time
    three.happen(2, ev.Tick(), now=1.0)
    three.happen(2, ev.Tick(), now=5.0)
    assert (2, ev.Fetch(Result(0, 0, b"digest"), (0, 1))) in three.done


def test_a_restored_core_knows_what_it_wrote():
    three = Three()
    again = core(1, three.records[1])
    assert again.state == three.cores[1].state
    first = again.step(ev.Tick(), 0.0)[0]
    assert first == ev.Write(Boot("run", "folder 1", 2))


def test_a_core_never_begins_an_attempt_twice():
    three = Three()
    three.happen(1, ev.Update(0))
    again = core(1, three.records[1])
    again.step(ev.Link(0), 0.0)
    actions = again.step(ev.Update(0), 0.0)
    assert not any(isinstance(action, ev.Share) for action in actions)
    status = next(action.message.statuses[0] for action in actions if isinstance(action, ev.Send))
    assert (status.failed.round, status.failed.attempt, status.failed.peers) == (0, 0, ())


def test_records_of_another_peer_or_run_are_refused():
    three = Three()
    with pytest.raises(RunFolderError, match="another run or peer"):
        core(1, three.records[1], incarnation="another")
    entries = [record for record in three.records[1] if isinstance(record, Decided)]
    with pytest.raises(RunFolderError, match="damaged"):
        core(1, entries[1:])


def test_votes_are_written_before_they_are_sent():
    one, writes = core(0), []
    for peer in (1, 2):
        status = Status(peer, f"folder {peer}", 1, 1, reaches=(0, 1, 2), signature=b"signed by key%d" % peer)
        for action in one.step(ev.Received(peer, Gossip("run", (status,))), 0.0):
            if isinstance(action, ev.Write) and isinstance(action.record, Promise):
                writes += action.record.votes
            if isinstance(action, ev.Send):
                assert set(action.message.votes) <= set(writes)
    assert writes


def test_a_wish_that_was_granted_does_not_come_back_with_an_old_status():
    three = Three()
    more, longer = Settings(rounds=5), Settings(rounds=5, train=7.0)
    three.happen(2, ev.Command(more))
    three.happen(0, ev.Command(longer))
    one = three.cores[0]
    assert (one.state.settings, one.log[-1].entry) == (longer, longer)
    assert one.views.asked() == []
    # peer 2 stopped before it knew that it was granted; others repeat what it said last
    stale = Status(2, "folder 2", 9, 1, length=2, reaches=(0, 1), asks=more, signature=b"signed by key2")
    one.step(ev.Received(1, Gossip("run", (stale,))), 1.0)
    assert one.views.statuses[2] == stale
    assert one.views.asked() == []
    # asked for once more, by who knows
    again = Status(2, "folder 2", 9, 2, length=one.state.length, reaches=(0, 1), asks=more, signature=b"signed by key2")
    one.step(ev.Received(1, Gossip("run", (again,))), 1.0)
    assert one.views.asked() == [more]


@pytest.mark.parametrize(
    ("wish", "then"), [(Move(2, "elsewhere:1"), ["Abandon", "Move", "Begin"]), (Remove(2), []), (Move(2, "h2:1"), [])]
)
def test_an_attempt_of_which_nothing_was_opened_makes_way_for_another_roster_that_is_allowed(wish, then):
    three = Three()
    assert three.cores[0].state.phase == "begun"
    three.happen(1, ev.Command(wish))
    assert [type(one.entry).__name__ for one in three.cores[0].log] == ["Start", "Begin", *then]


def test_who_does_not_know_that_the_last_round_is_void_has_not_finished():
    three = Three()
    for k in range(3):
        three.happen(k, ev.Tick(), now=1.0)
    one = three.cores[0]
    state = one.state
    assert one.views.finished() == (0, 1, 2)
    behind = Status(2, "folder 2", 9, 1, length=state.length - 1, reaches=(0, 1), signature=b"signed by key2")
    one.step(ev.Received(2, Gossip("run", (behind,))), 2.0)
    assert one.views.finished() == (0, 1)


def test_who_leaves_passes_on_what_it_heard_of_others():
    """Those that never heard a peer which came back and has the model need not wait for it."""
    three = Three()
    one = three.cores[0]
    said = Status(2, "folder 2", 9, 1, length=one.state.length, reaches=(0,), signature=b"signed by key2")
    one.step(ev.Received(2, Gossip("run", (said,))), 0.1)
    sends = [action.message for action in one.step(ev.Leaving(), 0.2) if isinstance(action, ev.Send)]
    assert sends[0].statuses[0].leaving
    assert said in sends[0].statuses


def test_forged_items_count_as_refused_and_change_nothing():
    three = Three()
    one = three.cores[0]
    before = one.state
    own = Vote(1, before.length, 0, 1, one.proofs.value(End("mine")), b"signed by key1")
    forged = Vote(2, before.length, 0, 1, one.proofs.value(End("mine")), b"signed by key1")
    said = []
    for votes in ((own,), (own, own), (own, forged)):
        message = Gossip("run", decided=(Decided(before.length, End("mine"), votes),))
        said.append(refusals(one.step(ev.Received(1, message), 0.0)))
    said.append(refusals(one.step(ev.Received(1, Gossip("run", votes=(forged,))), 0.0)))
    said.append(refusals(one.step(ev.Received(1, Gossip("another run")), 0.0)))
    assert one.state == before
    # the same is said once
    entry, vote, run = "an entry without its votes", "a vote that is not signed by a voter", "a message of another run"
    assert said == [[entry], [], [], [vote], [run]]


def refusals(actions) -> list[str]:
    """Return why something did not count."""
    return [action.detail for action in actions if isinstance(action, ev.Tell) and action.what == "refused"]


def test_bytes_that_are_no_message_are_none():
    rng = random.Random(0)
    three = Three()
    messages = [encode(Gossip("run", decided=tuple(three.cores[0].log)))]
    messages += [encode(record) for record in three.records[0]]
    for data in messages:
        for _ in range(300):
            changed = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            cut = bytes(changed[: rng.randrange(len(changed) + 1)])
            for read in (decode, decode_record):
                found = read(cut)
                assert found is None or encode(found)


@pytest.fixture
def stretched(monkeypatch):
    """Entries of a log that keeps the votes of every fourth only."""
    monkeypatch.setattr(Core, "stretch", 4)
    three = Three()
    for rounds in range(3, 9):
        three.happen(0, ev.Command(Settings(rounds=rounds)))
    assert [bool(one.votes) for one in three.cores[0].log[:4]] == [True, False, False, True]
    return three.cores[0].log


def heard(*entries: Decided, refused: bool = False) -> Core:
    """Return a new peer that was handed these entries."""
    late = core(2)
    assert bool(refusals(late.step(ev.Received(0, Gossip("run", decided=entries)), 0.0))) == refused
    return late


def test_later_votes_prove_earlier_entries(stretched):
    late = heard(*stretched)
    assert [one.entry for one in late.log] == [one.entry for one in stretched]
    assert core(2, late.log).state == late.state


def test_entries_without_votes_count_only_when_votes_follow(stretched):
    assert (heard(*stretched[:3]).state.length, core(2, stretched[:3]).state.length) == (1, 1)


@pytest.mark.parametrize("entry", [End("forged"), Remove(2)])
def test_votes_prove_no_other_entries_and_no_other_voters(stretched, entry):
    forged = [stretched[0], Decided(1, entry, ()), *stretched[2:4]]
    assert heard(*forged, refused=True).state.length == 1
    with pytest.raises(RunFolderError, match="entry 1"):
        core(2, forged)


def test_a_log_proves_itself_to_others_whoever_handed_it_over(stretched):
    """A liar hands over entries with votes in other places than at the end of a stretch."""
    bare = Decided(3, stretched[3].entry, ())
    late = heard(*stretched[:3], bare, *stretched[4:], refused=True)
    assert late.state.length == 1
    later = heard(*late.log, *stretched[1:])
    assert later.state.length == len(stretched)
    for start in range(len(stretched)):
        assert any(one.votes for one in later.log[start : start + Core.stretch])


def test_a_log_is_a_sequence_that_keeps_little(stretched):
    entries = list(stretched)
    assert len(entries) == len(stretched) == 8
    assert [stretched[k] for k in range(-8, 8)] == entries * 2
    assert list(reversed(stretched)) == entries[::-1]
    for start in range(-9, 10):
        assert list(stretched[start:]) == entries[start:]
        for stop in range(-9, 10):
            assert list(stretched[start:stop]) == entries[start:stop]
    with pytest.raises(IndexError):
        stretched[8]


def test_entries_are_handed_over_with_as_few_votes_as_prove_them(stretched, monkeypatch):
    """However many peers vote and entries are missing, a message is not too long for a link."""
    for start in range(1, len(stretched)):
        portion = stretched.portion(start)
        assert heard(stretched[0], *stretched[1:start], *portion).state.length > start
    assert [bool(one.votes) for one in stretched.portion(0)] == [True, False, False, True]
    assert [bool(one.votes) for one in stretched.portion(4)] == [False] * (len(stretched) - 5) + [True]
    monkeypatch.setattr(proofs, "MOST_VOTES", 3)
    assert [one.index for one in stretched.portion(0)] == [0, 1, 2]
    assert all(len(one.votes) <= 2 for one in stretched[1:])
