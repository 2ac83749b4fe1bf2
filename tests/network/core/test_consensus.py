"""One index of the log: the rules of Tendermint (arXiv 1807.04938, algorithm 1)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from securedfl.network.core.consensus import MOST_BALLOTS, Consensus
from securedfl.network.core.entries import End, Entry
from securedfl.network.core.messages import PRECOMMIT, PREVOTE, Promise, Proposal, Vote

NIL = b""
MINE, OTHER = End("mine"), End("other")


class Judge:
    """One of four voters, who wants one thing and agrees with everything unless told not to."""

    def __init__(self, wanted: Entry | None = None) -> None:
        self.wanted, self.agreeable = wanted, True
        self.index, self.voters, self.quorum, self.lying = 0, range(4), 3, 1
        self.me, self.may_vote = 3, True

    def timeout(self, ballot, peer):
        return 1.0

    def want(self):
        return self.wanted

    def allows(self, entry):
        return entry.reason != "forbidden"

    def agrees(self, entry):
        return self.agreeable

    def value(self, entry):
        return entry.reason.encode()

    def signed(self, item):
        return replace(item, signature=b"signed")


def one(judge: Judge, me: int = 3, votes: bool = True) -> Consensus:
    """Return one of four voters; peer 0 proposes in ballot 0, peer 1 in ballot 1."""
    judge.me, judge.may_vote = me, votes
    return Consensus(judge, judge)


def prevotes(value: bytes, ballot: int, *peers: int) -> list[Vote]:
    return [Vote(peer, 0, ballot, PREVOTE, value) for peer in peers]


def cast(consensus: Consensus) -> list[tuple[int, int, bytes]]:
    return [(v.ballot, v.kind, v.value) for v in consensus.news if isinstance(v, Vote)]


def locked(judge: Judge) -> Consensus:
    """Return a peer that locked on "mine" in ballot 0, and is in ballot 1."""
    consensus = one(judge)
    consensus.add_proposal(Proposal(0, 0, 0, MINE))
    for vote in prevotes(b"mine", 0, 0, 1):
        consensus.add_vote(vote)
    consensus.advance(0.0)
    assert cast(consensus) == [(0, PREVOTE, b"mine"), (0, PRECOMMIT, b"mine")]
    for peer in (0, 1):
        consensus.add_vote(Vote(peer, 0, 0, PRECOMMIT, NIL))
    consensus.advance(0.0)
    consensus.advance(1.0)
    assert consensus.ballot == 1
    consensus.news = []
    return consensus


def test_nobody_votes_while_nobody_wants_anything():
    consensus = one(Judge(), me=0)
    consensus.advance(0.0)
    consensus.advance(100.0)
    assert consensus.news == []
    assert (consensus.timer, consensus.ending) == (None, None)


def test_whoever_wants_something_waits_for_the_proposer_then_votes_nil():
    consensus = one(Judge(MINE))
    consensus.advance(0.0)
    assert consensus.timer == 1.0
    consensus.advance(1.0)
    assert cast(consensus) == [(0, PREVOTE, NIL)]


def test_the_proposer_proposes_what_it_wants_and_votes_for_it():
    consensus = one(Judge(MINE), me=0)
    consensus.advance(0.0)
    assert isinstance(consensus.news[0], Proposal)
    assert cast(consensus) == [(0, PREVOTE, b"mine")]


def test_a_quorum_decides():
    consensus = one(Judge())
    consensus.add_proposal(Proposal(0, 0, 0, MINE))
    for peer in (0, 1, 2):
        assert consensus.decision is None
        consensus.add_vote(Vote(peer, 0, 0, PRECOMMIT, b"mine"))
        consensus.advance(0.0)
    assert consensus.decision.entry == MINE
    assert [vote.peer for vote in consensus.decision.votes] == [0, 1, 2]


@pytest.mark.parametrize("values", [(b"mine", b"mine"), (b"mine", b"mine", NIL), (b"mine", b"mine", b"other")])
def test_less_than_a_quorum_decides_nothing(values):
    consensus = one(Judge(), votes=False)
    consensus.add_proposal(Proposal(0, 0, 0, MINE))
    for peer, value in enumerate(values):
        consensus.add_vote(Vote(peer, 0, 0, PRECOMMIT, value))
    consensus.advance(0.0)
    assert consensus.decision is None


def test_a_locked_peer_votes_against_anything_else():
    consensus = locked(Judge())
    consensus.add_proposal(Proposal(1, 0, 1, OTHER))
    consensus.advance(1.0)
    assert cast(consensus) == [(1, PREVOTE, NIL)]


def test_a_locked_peer_votes_for_the_same_again():
    consensus = locked(Judge())
    consensus.add_proposal(Proposal(1, 0, 1, MINE))
    consensus.advance(1.0)
    assert cast(consensus) == [(1, PREVOTE, b"mine")]


def test_a_later_quorum_of_prevotes_unlocks():
    consensus = locked(Judge())
    consensus.add_vote(Vote(0, 0, 2, PREVOTE, NIL))
    consensus.add_vote(Vote(1, 0, 2, PREVOTE, NIL))
    consensus.add_proposal(Proposal(2, 0, 2, OTHER, 1, tuple(prevotes(b"other", 1, 0, 1, 2))))
    consensus.advance(1.0)
    assert cast(consensus) == [(2, PREVOTE, b"other")]


def test_an_entry_with_a_quorum_of_prevotes_is_proposed_again_whatever_its_proposer_wants_now():
    judge = Judge()
    consensus = locked(judge)
    consensus.me = 1
    judge.wanted = OTHER
    consensus.advance(1.0)
    again = consensus.news[0]
    assert (again.entry, again.valid) == (MINE, 0)
    assert {vote.value for vote in again.polka} == {b"mine"}


def test_a_fresh_proposal_that_makes_no_sense_yet_is_waited_on():
    judge = Judge()
    judge.agreeable = False
    consensus = one(judge)
    consensus.add_proposal(Proposal(0, 0, 0, MINE))
    consensus.advance(0.0)
    assert cast(consensus) == []
    judge.agreeable = True
    consensus.advance(0.5)
    assert cast(consensus) == [(0, PREVOTE, b"mine")]


def test_what_the_log_forbids_gets_nil_at_once():
    consensus = one(Judge())
    consensus.add_proposal(Proposal(0, 0, 0, End("forbidden")))
    consensus.advance(0.0)
    assert cast(consensus) == [(0, PREVOTE, NIL)]


def test_one_liar_cannot_lead_into_a_later_ballot_but_two_peers_can():
    consensus = one(Judge())
    consensus.add_vote(Vote(0, 0, 7, PREVOTE, NIL))
    consensus.advance(0.0)
    assert consensus.ballot == 0
    consensus.add_vote(Vote(1, 0, 5, PREVOTE, NIL))
    consensus.advance(0.0)
    assert consensus.ballot == 5


def test_the_first_vote_in_its_place_counts_and_old_ballots_are_dropped():
    consensus = one(Judge(), votes=False)
    assert consensus.add_vote(Vote(0, 0, 0, PREVOTE, b"mine"))
    assert not consensus.add_vote(Vote(0, 0, 0, PREVOTE, b"other"))
    for ballot in range(1000):
        consensus.add_vote(Vote(0, 0, ballot, PREVOTE, NIL))
    assert sum(0 in place for place in consensus.votes.values()) == MOST_BALLOTS


def test_a_restored_peer_votes_as_it_did():
    first = locked(Judge())
    first.add_proposal(Proposal(1, 0, 1, OTHER))
    first.advance(1.0)
    promise = first.promise
    assert isinstance(promise, Promise)
    again = one(Judge())
    again.restore(promise)
    again.add_proposal(Proposal(1, 0, 1, MINE))
    again.advance(5.0)
    assert cast(again) == [], "it voted in this ballot before"
    assert again.locked.entry == MINE


def gave_up() -> Consensus:
    """Return a peer that went on to ballot 1, because a quorum, a liar in it, gave ballot 0 up."""
    consensus = one(Judge(MINE))
    consensus.advance(0.0)
    consensus.advance(1.0)
    for vote in (*prevotes(NIL, 0, 1, 2), Vote(1, 0, 0, PRECOMMIT, NIL), Vote(2, 0, 0, PRECOMMIT, NIL)):
        consensus.add_vote(vote)
    consensus.advance(1.0)
    assert consensus.ballot == 1
    return consensus


def led(promise: Promise) -> int:
    """Return the ballot that another peer reaches with what a peer knows that was restarted with this promise."""
    again, behind = one(Judge(MINE)), one(Judge(MINE), me=0)
    again.restore(promise)
    behind.advance(0.0)
    behind.advance(1.0)
    assert behind.ballot == 0
    for vote in again.known()[1]:
        behind.add_vote(vote)
    behind.advance(1.0)
    return behind.ballot


def test_who_went_on_leads_others_there_after_a_restart():
    """Though the peer that helped it on is gone, with its votes: seed 1014138 of the world waited for ever."""
    assert led(gave_up().promise) == 1


def test_who_followed_leads_others_too():
    consensus = one(Judge(MINE))
    for vote in (*prevotes(NIL, 5, 1), *prevotes(NIL, 1005, 2)):
        consensus.add_vote(vote)
    consensus.advance(0.0)
    assert consensus.ballot == 5
    assert led(consensus.promise) == 5


def test_a_liar_far_ahead_hides_neither_its_votes_here_nor_the_proposals_of_others():
    consensus = one(Judge(MINE))
    for ballot in range(1000, 1000 + 2 * MOST_BALLOTS):
        consensus.add_vote(Vote(2, 0, ballot, PREVOTE, NIL))
        consensus.add_proposal(Proposal(2, 0, ballot, OTHER))
    consensus.add_proposal(Proposal(0, 0, 0, MINE))
    for vote in prevotes(b"mine", 0, 0, 2):
        consensus.add_vote(vote)
    consensus.advance(0.0)
    assert cast(consensus) == [(0, PREVOTE, b"mine"), (0, PRECOMMIT, b"mine")]
    assert len(consensus.votes) <= MOST_BALLOTS + 2, "each empty place would cost time with every vote"
    kept = [ballot for (_, ballot), place in consensus.votes.items() if 2 in place]
    assert len(kept) == MOST_BALLOTS
    assert max(kept) == 1000 + 2 * MOST_BALLOTS - 1
