"""The core alone: keys that are renewed, results that come late, disks that are lost, and what operators ask for."""

from __future__ import annotations

from msgspec.structs import replace

from securedfl.network.core import events as ev
from securedfl.network.core.entries import Add, End, Line, Move, Remove, Renew, Settings, Try
from securedfl.network.core.messages import Boot, Gossip, Promise, Result, Status
from securedfl.network.core.state import reduce, refusal
from tests.network.core.test_core import Three, core


def test_a_peer_whose_key_was_renewed_is_silent_until_it_has_the_new_one():
    """Its shell takes the new key after the step that decides so; what it signed before that, others would refuse."""
    three = Three()
    three.happen(1, ev.Command(Renew(0, b"new key")))
    one = three.cores[0]
    assert one.state.peer(0).key == b"new key"
    assert three.cores[1].state == one.state
    index = one.state.length
    for now in (1.0, 2.0):
        sends = [action.message for action in one.step(ev.Tick(), now) if isinstance(action, ev.Send)]
        assert not any(status.peer == 0 for message in sends for status in message.statuses)
    three.happen(1, ev.Command(End("enough")), now=2.0)
    assert not [vote for place in one.consensus.votes.values() for vote in place.values() if vote.peer == 0]
    one._signer.own = b"new key"
    for now in (3.0, 4.0, 5.0):
        for k in range(3):
            three.happen(k, ev.Tick(), now=now)
    assert one.state.length > index
    assert all(core.state == one.state for core in three.cores)


def test_a_peer_that_does_not_know_yet_that_its_key_was_renewed_catches_up():
    """Others learn from its status how long its log is; they know the new key."""
    three = Three()
    three.happen(1, ev.Command(Renew(0, b"new key")))
    late = core(0, [Boot("run", "folder 0", 1)])
    late._signer.own = b"new key"
    late.step(ev.Link(1), 0.0)
    sent = [action.message for action in late.step(ev.Tick(), 1.0) if isinstance(action, ev.Send)]
    assert [status.signature for message in sent for status in message.statuses] == [b"signed by new key"]
    three.cores[1]._supply.lengths.pop(0, None)
    answers = three.cores[1].step(ev.Received(0, sent[0]), 1.0)
    for answer in (action.message for action in answers if isinstance(action, ev.Send)):
        late.step(ev.Received(1, answer), 1.0)
    assert late.state == three.cores[1].state


def test_the_same_impossible_wish_is_answered_each_time_it_is_asked():
    three = Three()
    one = three.cores[0]
    for now in (0.0, 0.1, 0.2):
        one.step(ev.Command(Remove(9)), now)
        one.step(ev.Command(None), now)
    one.step(ev.Command(Remove(9)), 0.3)
    told = [action.detail for action in one.step(ev.Tick(), 5.0) if isinstance(action, ev.Tell)]
    assert told.count("no such peer") == 1
    for now in (5.1, 5.2):
        one.step(ev.Command(None), now)
        one.step(ev.Command(Remove(9)), now)
    told = [action.detail for action in one.step(ev.Tick(), 9.0) if isinstance(action, ev.Tell)]
    assert told.count("no such peer") == 1


def test_fewer_rounds_than_have_begun_are_refused_at_once():
    three = Three()
    assert three.cores[0].state.phase == "begun"
    three.cores[0].step(ev.Command(Settings(rounds=0)), 0.1)
    told = [action.detail for action in three.cores[0].step(ev.Tick(), 5.0) if isinstance(action, ev.Tell)]
    assert "round 0 has begun, so that it is the last one at the earliest" in told


def test_a_result_that_comes_late_hides_no_newer_one():
    """It was fetched for a round that is void by now."""
    one = core(0)
    for result in (Result(2, 0, b"new"), Result(1, 0, b"old")):
        one.step(result, 0.0)
    assert one.conduct.status.holds == Result(2, 0, b"new")


def test_all_results_on_disk_count():
    """One that this peer computed itself does not hide the one that was agreed on."""
    three = Three()
    for k in range(3):
        three.happen(k, ev.Update(0))
    for k in range(3):
        three.happen(k, ev.Shared(Try(0, 0)))
    agreed, own = Result(0, 0, b"agreed"), Result(0, 0, b"own")
    for result in (agreed, own):
        three.happen(2, result)
    for k in range(2):
        three.happen(k, agreed)
    assert (2, ev.Apply(agreed)) in three.done


def test_a_promise_is_written_only_when_something_was_promised():
    three = Three()
    assert all(record.votes or record.ballot for record in three.records[0] if isinstance(record, Promise))
    assert sum(isinstance(record, Promise) for record in three.records[0]) <= 2 * three.cores[0].state.length


def test_each_lost_disk_is_told():
    three = Three()
    told = []
    for folder in ("another", "a third"):
        said = Status(2, folder, 1, 1, signature=b"signed by key2")
        actions = three.cores[0].step(ev.Received(2, Gossip("run", (said,))), 0.0)
        told += [action.peers for action in actions if isinstance(action, ev.Tell) and action.what == "stranger"]
    assert told == [(2,), (2,)]


def beats(one, until):
    """Return when a core sends everything, as its shell would wake it."""
    now, found = one.views.now, []
    while now < until:
        wake = next(action.at for action in one.step(ev.Tick(), now) if isinstance(action, ev.Wake))
        found.append(now)
        now = max(wake, now + 1e-3)
    return found


def test_a_shorter_heartbeat_counts_at_once():
    """Not when the longer one would have been over: until then the others would take this peer for lost."""
    three = Three()
    three.happen(0, ev.Command(Settings(rounds=2, heartbeat=600.0)), now=1.0)
    for k in range(3):
        three.happen(k, ev.Tick(), now=2.0)
    assert three.cores[1].state.settings.heartbeat == 600
    three.happen(0, ev.Command(Settings(rounds=2, heartbeat=1.0)), now=3.0)
    assert three.cores[1].state.settings.heartbeat == 1
    assert len(beats(three.cores[1], 9.0)) >= 5


def test_two_peers_never_have_one_address():
    three = Three()
    one = three.cores[0]
    for ask in (Move(1, "h0:1"), Add(Line(3, "new", "h2:1", b"key3"))):
        assert "another peer has that address" in refusal(replace(one.state, phase="idle"), ask, one.rules)
    for ask in (Move(1, ""), Move(1, "h1:2"), Add(Line(3, "new", "", b"key3"))):
        assert not refusal(replace(one.state, phase="idle"), ask, one.rules)
    # several only dial out
    out = reduce(replace(one.state, phase="idle"), Move(1, ""), one.rules)
    assert not refusal(out, Move(2, ""), one.rules)
