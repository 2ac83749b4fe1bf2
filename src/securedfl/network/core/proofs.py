"""What counts as said by a peer, and as decided by a quorum, at one index of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar, overload

import msgspec
from msgspec.structs import replace

from securedfl.network.core.entries import Entry, Start, Voting
from securedfl.network.core.messages import (
    PRECOMMIT,
    PREVOTE,
    Decided,
    Proposal,
    Signer,
    Status,
    Vote,
    digest,
    encode,
    signed_part,
)
from securedfl.network.core.state import Rules, State, needed, reduce, refusal, voters

Signed = TypeVar("Signed", Status, Vote, Proposal)
MOST_VOTES = 4096
"""Votes that travel with entries in one message."""
_entries = msgspec.msgpack.Decoder(tuple[Decided, ...])


class Proofs:
    """Signs and checks what is said about the entry that follows a state.

    Attributes
    ----------
    index, voters, quorum, lying
        Of the entry: where it will stand, who votes on it, how many votes decide, and how many voters may lie.
    me
        This peer's number.
    """

    def __init__(self, state: State, rules: Rules, signer: Signer, me: int, incarnation: str) -> None:
        self._state, self._rules, self._signer, self._incarnation = state, rules, signer, incarnation
        self.index, self.voters, self.quorum = state.length, voters(state), needed(state, rules)
        self.lying, self.me, self._mine = rules.lying, me, state.peer(me)
        self._before = digest(state)

    @property
    def outdated(self) -> bool:
        """Whether this peer still has a key that was renewed, so that others refuse what it signs.

        One that the log here does not name yet may be named by the logs of others.
        """
        return any(line.number == self.me and self._signer.owns(line.key) for line in self._state.retired)

    @property
    def may_vote(self) -> bool:
        """Whether this peer votes: with the key of the roster, from a state folder that is admitted, if any is yet."""
        mine = self._mine
        if mine is None or not self._signer.owns(mine.key):
            return False
        return mine.incarnation == self._incarnation or not self.index

    def allows(self, entry: Entry) -> bool:
        """Say whether the log allows an entry; the first one must also name this peer's state folder."""
        if refusal(self._state, entry, self._rules):
            return False
        if not isinstance(entry, Start):
            return True
        named = zip(self._state.roster, entry.incarnations, strict=True)
        return any(peer.number == self.me and name == self._incarnation for peer, name in named)

    def value(self, entry: Entry) -> bytes:
        """Return what a vote for an entry names: a digest of it and of the state that it follows."""
        return digest(self._state.run, self.index, entry, self._before)

    def signed(self, item: Signed) -> Signed:
        """Return an item with this peer's signature."""
        # no state folder is admitted before the first entry, so votes on it name none
        incarnation = self._incarnation if self.index or isinstance(item, Status) else ""
        data = signed_part(self._state.run, incarnation, item)
        return replace(item, signature=self._signer.sign(data))

    def said(self, item: Status | Vote | Proposal, incarnation: str) -> bool:
        """Say whether the peer that an item names signed it, from this state folder."""
        peer = self._state.peer(item.peer)
        data = signed_part(self._state.run, incarnation, item)
        return peer is not None and self._signer.verify(peer.key, data, item.signature)

    def voted(self, item: Vote | Proposal) -> bool:
        """Say whether a voter signed it, from the state folder that is admitted."""
        peer = self._state.peer(item.peer)
        return item.peer in self.voters and peer is not None and self.said(item, peer.incarnation)

    def sound(self, proposal: Proposal) -> bool:
        """Say whether it is its author's turn, and an entry proposed before brings its quorum of prevotes."""
        turn = self.voters[(proposal.index + proposal.ballot) % len(self.voters)]
        if proposal.peer != turn or not self.voted(proposal):
            return False
        if proposal.valid == -1:
            return not proposal.polka
        return proposal.valid < proposal.ballot and self._enough(
            proposal.polka, PREVOTE, proposal.valid, self.value(proposal.entry)
        )

    def run(self, entries: Sequence[Decided], stretch: int) -> Sequence[Decided] | None:
        """Return the next entries up to the first with votes, which prove all of them; none of them if none has.

        None if they are not proven. An entry that changes who votes needs votes of its own: else it could name those
        that prove it. So does the last of a stretch: else a liar could hand over a log that proves nothing to others.
        """
        state = self._state
        for count, decided in enumerate(entries, start=1):
            entry, votes = decided.entry, decided.votes
            if decided.index != state.length or refusal(state, entry, self._rules):
                return None
            if votes:
                proofs = Proofs(state, self._rules, self._signer, self.me, self._incarnation)
                enough = proofs._enough(votes, PRECOMMIT, votes[0].ballot, proofs.value(entry))
                return entries[:count] if enough else None
            if needs_votes(decided, stretch):
                return None
            state = reduce(state, entry, self._rules)
        return ()

    def _enough(self, votes: Sequence[Vote], kind: int, ballot: int, value: bytes) -> bool:
        """Say whether these are enough votes of different voters for one value."""
        wanted = (kind, self.index, ballot, value)
        fit = {vote.peer for vote in votes if (vote.kind, vote.index, vote.ballot, vote.value) == wanted}
        return len(fit) == len(votes) >= self.quorum and all(self.voted(vote) for vote in votes)


def needs_votes(decided: Decided, stretch: int) -> bool:
    """Say whether an entry cannot be proven by the votes of a later one, whoever hands it over."""
    return isinstance(decided.entry, Voting) or (decided.index + 1) % stretch == 0


class Log(Sequence[Decided]):
    """The decided entries, which grow for ever: small, and read one stretch at a time. May be read by any thread.

    The votes of the last entry of a stretch prove all of it, so that the others lose theirs.

    Parameters
    ----------
    stretch
        How many entries it has.
    """

    def __init__(self, stretch: int) -> None:
        self._stretch = stretch
        # the stretches so far, and the entries that follow; replaced together, because others may read them
        self._kept: tuple[list[bytes], list[Decided]] = ([], [])
        self._unpacked: tuple[int, tuple[Decided, ...]] = (-1, ())

    def append(self, decided: Decided) -> None:
        """Add the next entry; at the end of a stretch, one that has votes."""
        packed, newest = self._kept
        if len(newest) + 1 < self._stretch:
            newest.append(decided)
            return
        self._kept = ([*packed, encode((*self._bare(newest), decided))], [])

    def portion(self, start: int) -> tuple[Decided, ...]:
        """Return entries for one who lacks those from there on: so many that some have votes, and fit a message."""
        found = self[start : start + self._stretch]
        counts = accumulate(len(one.votes) for one in found)
        found = found[: max(1, sum(count <= MOST_VOTES for count in counts))]
        return (*self._bare(found[:-1]), *found[-1:])

    def _bare(self, entries: Iterable[Decided]) -> Iterator[Decided]:
        """Yield entries without the votes that later ones make superfluous."""
        for one in entries:
            yield one if needs_votes(one, self._stretch) else Decided(one.index, one.entry, ())

    def __len__(self) -> int:
        packed, newest = self._kept
        return len(packed) * self._stretch + len(newest)

    @overload
    def __getitem__(self, at: int) -> Decided: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Decided]: ...

    def __getitem__(self, at: int | slice) -> Decided | Sequence[Decided]:
        if isinstance(at, slice):
            return [self[index] for index in range(len(self))[at]]
        place, rest = divmod(range(len(self))[at], self._stretch)
        (packed, newest), unpacked = self._kept, self._unpacked
        if place == len(packed):
            return newest[rest]
        if unpacked[0] != place:
            unpacked = self._unpacked = (place, _entries.decode(packed[place]))
        return unpacked[1][rest]
