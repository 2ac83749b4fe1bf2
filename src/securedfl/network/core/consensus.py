"""How one entry is decided: Tendermint (arXiv 1807.04938, algorithm 1), whose rounds are called ballots here.

It differs in four ways that keep its proof. Nobody proposes or waits unless there is something to decide. A value that
was proposed before brings its quorum of prevotes along, instead of relying on others to have seen it. A peer that
does not find a fresh proposal sensible yet waits until its timer ends before it votes nil. And a ballot that a quorum
gave up with nil ends at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from securedfl.network.core.messages import PRECOMMIT, PREVOTE, Decided, Promise, Proposal, Vote
from securedfl.network.core.proofs import Proofs
from securedfl.network.core.sense import Sense

NIL = b""
MOST_BALLOTS = 16
"""Ballots of which the votes of one peer are kept."""


class Consensus:
    """The votes on one index.

    Parameters
    ----------
    proofs
        The index, who votes on it, and whether this peer does; what votes name, and what the log allows.
    sense
        This peer's opinions: what it wants and agrees with, and how long it waits.

    Attributes
    ----------
    timer, ending
        When it votes nil in this ballot, and when it leaves it, unless something happens.
    """

    def __init__(self, proofs: Proofs, sense: Sense) -> None:
        self._proofs, self._sense = proofs, sense
        self.index, self.voters, self.quorum, self.me = proofs.index, proofs.voters, proofs.quorum, proofs.me
        self.ballot = 0
        self.proposals: dict[int, Proposal] = {}
        self.votes: dict[tuple[int, int], dict[int, Vote]] = {}
        self.locked: Proposal | None = None
        self.valid: Proposal | None = None
        self.decision: Decided | None = None
        self.news: list[Vote | Proposal] = []
        self.timer: float | None = None
        self.ending: float | None = None
        self._way: tuple[Vote, ...] = ()

    def restore(self, promise: Promise) -> None:
        """Go on where this peer was."""
        self.ballot, self.locked, self.valid, self._way = promise.ballot, promise.locked, promise.valid, promise.way
        for vote in (*promise.votes, *promise.way):
            self.add_vote(vote)

    @property
    def promise(self) -> Promise:
        """What must be on disk before `news` are sent."""
        mine = (self._cast(PREVOTE), self._cast(PRECOMMIT))
        return Promise(self.index, self.ballot, tuple(v for v in mine if v), self.locked, self.valid, self._way)

    @property
    def proposer(self) -> int:
        """Who proposes in this ballot."""
        return self.voters[(self.index + self.ballot) % len(self.voters)]

    def add_vote(self, vote: Vote) -> bool:
        """Take a vote whose signature was checked; return whether something may follow. The first in a place counts."""
        place = self.votes.setdefault((vote.kind, vote.ballot), {})
        if vote.peer in place:
            return False
        place[vote.peer] = vote
        held = [ballot for kind, ballot in self.votes if kind == vote.kind and vote.peer in self.votes[kind, ballot]]
        if len(held) > MOST_BALLOTS:
            # a liar that is far ahead must not hide what it said here, nor that it is ahead
            spare = min(ballot for ballot in held if ballot not in (self.ballot - 1, self.ballot, max(held)))
            del self.votes[vote.kind, spare][vote.peer]
            if not self.votes[vote.kind, spare]:
                # each place that is looked through costs time
                del self.votes[vote.kind, spare]
        waits = self.timer is not None or self._cast(PREVOTE) is not None
        return len(place) >= self.quorum or vote.ballot > self.ballot or not waits

    def add_proposal(self, proposal: Proposal) -> None:
        """Take a proposal whose signatures were checked."""
        self.proposals.setdefault(proposal.ballot, proposal)
        if len(self.proposals) > MOST_BALLOTS:
            del self.proposals[min(ballot for ballot in self.proposals if ballot not in (self.ballot - 1, self.ballot))]

    def known(self) -> tuple[tuple[Proposal, ...], tuple[Vote, ...]]:
        """Return what others may need: this ballot, the one before, and the votes with which they can follow."""
        recent = (self.ballot - 1, self.ballot)
        votes = [vote for (_, ballot), place in self.votes.items() if ballot in recent for vote in place.values()]
        way = [vote for vote in self._way if vote not in votes]
        return tuple(p for ballot, p in self.proposals.items() if ballot in recent), (*votes, *way)

    def advance(self, now: float) -> None:
        """Do all that can be done now."""
        while self.decision is None and self._once(now):
            pass

    def due(self, beat: float) -> float:
        """Return when something happens by itself: a heartbeat, or a timer that ends before it."""
        return min(beat, beat if self.timer is None else self.timer, beat if self.ending is None else self.ending)

    def _once(self, now: float) -> bool:
        """Do one thing; return whether there may be more."""
        if self._decide():
            return False
        if not self._proofs.may_vote:
            return False
        ahead = self._ahead()
        if ahead:
            self._enter(ahead[-1].ballot, ahead)
            return True
        if self._cast(PREVOTE) is None:
            return self._propose() or self._prevote(now)
        return self._precommit(now) or self._leave(now)

    def _decide(self) -> bool:
        for (kind, ballot), place in self.votes.items():
            proposal = self.proposals.get(ballot)
            if kind == PRECOMMIT and proposal is not None and len(place) >= self.quorum:
                value = self._proofs.value(proposal.entry)
                agreed = tuple(vote for vote in place.values() if vote.value == value)
                if len(agreed) >= self.quorum and self._proofs.allows(proposal.entry):
                    self.decision = Decided(self.index, proposal.entry, agreed[: self.quorum])
                    return True
        return False

    def _ahead(self) -> list[Vote]:
        """Return votes of more peers than may lie in later ballots, the highest first: somebody honest is there."""
        highest: dict[int, Vote] = {}
        for (_, ballot), place in self.votes.items():
            if ballot > self.ballot:
                highest.update({p: v for p, v in place.items() if p not in highest or highest[p].ballot < ballot})
        if len(highest) <= self._proofs.lying:
            return []
        return sorted(highest.values(), key=lambda vote: -vote.ballot)[: self._proofs.lying + 1]

    def _enter(self, ballot: int, way: Iterable[Vote]) -> None:
        """Go on to a ballot, and keep the votes that led there: whoever cast them may lose them, and others follow."""
        self.ballot, self._way, self.timer, self.ending = ballot, tuple(way), None, None

    def _propose(self) -> bool:
        """Propose, if it is this peer's turn and there is something (lines 14 to 21)."""
        if self.me != self.proposer or self.ballot in self.proposals:
            return False
        if self.valid is not None:
            entry, since, polka = self.valid.entry, self.valid.ballot, self.valid.polka
        else:
            wanted = self._sense.want()
            if wanted is None:
                return False
            entry, since, polka = wanted, -1, ()
        made = self._proofs.signed(Proposal(self.me, self.index, self.ballot, entry, since, polka))
        self.add_proposal(made)
        self.news.append(made)
        return True

    def _prevote(self, now: float) -> bool:
        """Vote on the proposal, or nil if none comes in time (lines 22 to 33, 57 to 60)."""
        proposal = self.proposals.get(self.ballot)
        if proposal is not None:
            value = self._proofs.value(proposal.entry)
            same = self.locked is None or self._proofs.value(self.locked.entry) == value
            fits = same or (self.locked is not None and self.locked.ballot <= proposal.valid)
            if not fits or not self._proofs.allows(proposal.entry):
                return self._vote(PREVOTE, NIL)
            if proposal.valid >= 0 or self.locked is not None or self._sense.agrees(proposal.entry):
                return self._vote(PREVOTE, value)
        if self.timer is None and self._engaged():
            self.timer = now + self._sense.timeout(self.ballot, self.proposer)
        return self.timer is not None and now >= self.timer and self._vote(PREVOTE, NIL)

    def _engaged(self) -> bool:
        """Say whether something is to be decided: this peer wants it, or more others than may lie have voted."""
        if self.ballot > 0 or self.ballot in self.proposals:
            return True
        if len({peer for place in self.votes.values() for peer in place}) > self._proofs.lying:
            return True
        # whose turn it is would have proposed what it wants
        return self.me != self.proposer and self._sense.want() is not None

    def _precommit(self, now: float) -> bool:
        """Lock and precommit what a quorum prevoted, or nil (lines 34 to 46, 61 to 64)."""
        place = self.votes.get((PREVOTE, self.ballot), {})
        if len(place) < self.quorum:
            return False
        cast = self._cast(PRECOMMIT)
        proposal = self.proposals.get(self.ballot)
        if proposal is not None:
            value = self._proofs.value(proposal.entry)
            polka = tuple(vote for vote in place.values() if vote.value == value)
            if len(polka) >= self.quorum and (self.valid is None or self.valid.ballot < self.ballot):
                # as its author would propose it again; the signature of the old proposal is of no more use
                self.valid = replace(proposal, valid=-1, polka=polka, signature=b"")
                if cast is None:
                    self.locked = self.valid
                    return self._vote(PRECOMMIT, value)
                return True
        if cast is not None:
            return False
        if self._gave_up(place):
            return self._vote(PRECOMMIT, NIL)
        if self.timer is None:
            self.timer = now + self._sense.timeout(self.ballot, self.me)
        return now >= self.timer and self._vote(PRECOMMIT, NIL)

    def _leave(self, now: float) -> bool:
        """Go on to the next ballot when a quorum precommitted, but no entry (lines 47 and 48, 65 to 67)."""
        place = self.votes.get((PRECOMMIT, self.ballot), {})
        if len(place) < self.quorum:
            return False
        if not self._gave_up(place):
            if self.ending is None:
                self.ending = now + self._sense.timeout(self.ballot, self.me)
            if now < self.ending:
                return False
        self._enter(self.ballot + 1, place.values())
        return True

    def _gave_up(self, place: Mapping[int, Vote]) -> bool:
        """Say whether a quorum of these votes is nil."""
        return sum(vote.value == NIL for vote in place.values()) >= self.quorum

    def _cast(self, kind: int) -> Vote | None:
        return self.votes.get((kind, self.ballot), {}).get(self.me)

    def _vote(self, kind: int, value: bytes) -> bool:
        vote = self._proofs.signed(Vote(self.me, self.index, self.ballot, kind, value))
        self.add_vote(vote)
        self.news.append(vote)
        self.timer = None
        return True
