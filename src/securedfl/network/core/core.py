"""All of it together: events in, actions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from securedfl.errors import RunFolderError
from securedfl.network.core import events as ev
from securedfl.network.core.conduct import FACTS, Conduct
from securedfl.network.core.consensus import Consensus
from securedfl.network.core.entries import Admit, Ask, Entry, Start
from securedfl.network.core.messages import (
    MOST_ENTRIES,
    MOST_PROPOSALS,
    Boot,
    Decided,
    Gossip,
    Promise,
    Proposal,
    Record,
    Signer,
    Status,
    Stored,
    Vote,
)
from securedfl.network.core.proofs import Log, Proofs, Signed
from securedfl.network.core.sense import Sense, timeout
from securedfl.network.core.state import Rules, State, reduce, refusal
from securedfl.network.core.telling import Telling
from securedfl.network.core.views import SILENCE, Supply, Views

MOST_EARLY = 8
"""Messages about the next index that are kept for each sender."""


class Core:
    """One peer's part in the log. Make it with `restore`, then feed `step`.

    Attributes
    ----------
    state, log
        What the log says, and its entries with their votes.
    refused
        How many items of each peer did not count.
    stretch
        Of how many old entries one keeps its votes.
    """

    stretch = MOST_ENTRIES

    def __init__(self, me: int, genesis: State, rules: Rules, signer: Signer, incarnation: str, now: float) -> None:
        self.me, self.rules, self.incarnation = me, rules, incarnation
        self.state, self.log, self.refused = genesis, Log(self.stretch), dict[int, int]()
        self.views, self.now = Views(me, now), now
        self.conduct = Conduct(me, incarnation, rules)
        self._signer, self._links, self._direct = signer, set[int](), dict[int, float]()
        self._ask: Ask | None = None
        self._leaving = False
        self._promise: Promise | None = None
        self._status, self._facts = Status(me, incarnation, 0, 0), tuple[Any, ...]()
        self._beat, self._boot, self._sequence = now, 0, 0
        self._former: set[str] = set()
        self._supply = Supply()
        self._telling = Telling()
        self._writes, self._others, self._news, self._stirred = list[Record](), list[ev.Action](), False, True
        self._outbox = list[Vote | Proposal]()
        self._early, self._moved = list[tuple[int, Gossip]](), False
        self._wanted: tuple[Entry | None] | None = None
        self._index()

    @classmethod
    def restore(
        cls,
        records: Iterable[Record],
        *,
        me: int,
        genesis: State,
        rules: Rules,
        signer: Signer,
        incarnation: str,
        now: float,
    ) -> Core:
        """Return the core as it was when the last of these records was written; records of others are an error."""
        core, stored = cls(me, genesis, rules, signer, incarnation, now), Stored.of(records)
        before = stored.boot or Boot(genesis.run, incarnation, 0)
        if (before.run, before.incarnation) != (genesis.run, incarnation):
            raise RunFolderError("the state folder belongs to another run or peer; name the right folder")
        core._promise = stored.promise
        if stored.started is not None:
            core.conduct.started = (stored.started.round, stored.started.attempt)
        core._take_entries(stored.log, core._append)
        # those without votes at the end, which a crash left alone, will come again
        if any(record.votes for index, record in stored.entries.items() if index >= core.state.length):
            raise RunFolderError(f"entry {core.state.length} of the stored log is damaged; remove it and what follows")
        core._boot = before.count + 1
        core._writes = [Boot(genesis.run, incarnation, core._boot)]
        core._telling.now = []
        core._index()
        return core

    def step(self, event: ev.Event, now: float) -> list[ev.Action]:
        """Take in what happened; return what to do, in this order."""
        self.now = self.views.now = max(now, self.now)
        # most messages say nothing new, and nothing follows from them
        self._stirred = not isinstance(event, ev.Received) or self.now >= self.consensus.due(self._beat)
        self._take(event)
        if not self._stirred:
            return []
        self._renew_status()
        self._proceed()
        self._renew_status()
        return self._flush()

    def _proceed(self) -> None:
        """Decide what can be decided, then do what follows."""
        while True:
            if self._moved:
                self._moved, early, self._early = False, self._early, []
                for sender, message in early:
                    self._receive(sender, message)
            self._wanted = None
            self.consensus.advance(self.now)
            self._write_promise()
            self._outbox += self.consensus.news
            self.consensus.news = []
            if self.consensus.decision is None:
                break
            self._decide(self.consensus.decision)
        self._others += self.conduct.next(self.state, self.views)
        if self.conduct.record is not None:
            self._writes.append(self.conduct.record)
            self.conduct.record = None

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.Received(peer, message):
                self._receive(peer, message)
            case ev.LinkUp(peer):
                self._links.add(peer)
                self._news = True
            case ev.LinkDown(peer):
                self._links.discard(peer)
                self._direct.pop(peer, None)
            case ev.Command(ask):
                self._ask = ask
            case ev.Leaving():
                self._leaving = True
            case _:
                self.conduct.take(event)

    def _receive(self, sender: int, message: Gossip) -> None:
        """Take in what counts; the first thing that does not ends it, so that nobody makes others check much."""
        if message.run != self.state.run:
            return self._refuse(sender, "a message of another run")
        self._links.add(sender)
        self._direct[sender] = self.now
        self._stirred = self._stirred or sender not in self._status.reaches
        if message.decided:
            following = [decided for decided in message.decided if decided.index >= self.state.length]
            if not self._take_entries(following, self._decide):
                return self._refuse(sender, "an entry without its votes")
        for status in message.statuses:
            if status.peer == sender:
                self._supply.lengths[sender] = status.length
            if status.newer(self.views.statuses.get(status.peer)) and not self._take_status(status):
                return self._refuse(sender, "a status that is not signed by its peer")
        if message.votes or message.proposals:
            self._take_votes(sender, message)
        return None

    def _take_votes(self, sender: int, message: Gossip) -> None:
        """Take in proposals and votes about the next index, and keep those about the one after it."""
        ahead = self.state.length + 1
        early = any(v.index == ahead for v in message.votes) or any(p.index == ahead for p in message.proposals)
        if early and [kept for kept, _ in self._early].count(sender) < MOST_EARLY:
            # its sender has decided this index already; it counts as soon as this peer has
            self._early.append((sender, message))
        for proposal in message.proposals:
            if proposal.index == self.state.length and proposal.ballot not in self.consensus.proposals:
                if not self._proofs.sound(proposal):
                    return self._refuse(sender, "a proposal that is not sound")
                self.consensus.add_proposal(proposal)
                self._stirred = True
        for vote in message.votes:
            known = self.consensus.votes.get((vote.kind, vote.ballot), {})
            if vote.index == self.state.length and vote.peer not in known and vote.peer != self.me:
                if not self._proofs.voted(vote):
                    return self._refuse(sender, "a vote that is not signed by a voter")
                self._stirred = self.consensus.add_vote(vote) or self._stirred
        return None

    def _take_entries(self, entries: Sequence[Decided], take: Callable[[Decided], None]) -> bool:
        """Take the next entries, as far as they are proven; return False if one that should be is not."""
        while entries and entries[0].index == self.state.length:
            proven = self._proofs.run(entries, self.stretch)
            if not proven:
                return proven is not None
            for decided in proven:
                take(decided)
            entries = entries[len(proven) :]
            self._stirred = self._news = True
        return True

    def _take_status(self, status: Status) -> bool:
        """Take in something newer that a peer says about itself; return False if it did not sign that."""
        known, peer = self.views.statuses.get(status.peer), self.state.peer(status.peer)
        if peer is None or status.peer == self.me:
            return True
        # before the first entry whoever comes is welcome, unless another folder of the same peer is there
        other = known and known.incarnation != status.incarnation and self.views.present(peer.number, self.state)
        admitted = peer.incarnation == status.incarnation if peer.incarnation else not (other or self.state.length)
        stranger, _ = self.views.strangers.get(status.peer, (None, 0.0))
        if not admitted and (status.incarnation in self._former or not status.newer(stranger)):
            return True
        if not self._proofs.said(status, status.incarnation):
            return False
        if not self.state.length:
            self.views.note_folder(status)
        if admitted:
            new = self.views.take(status, self.state) or status.length < self.state.length
            self._stirred = self._stirred or new
        else:
            self.views.strangers[status.peer] = (status, self.now)
            self._stirred = True
            self._telling.say(f"stranger {status.peer}", ev.Tell("stranger", (status.peer,), status.incarnation))
        return True

    def _decide(self, decided: Decided) -> None:
        self._writes.append(decided)
        self._append(decided)
        self._moved = True
        self._telling.say("decided", ev.Tell("decided", entry=decided.entry))

    def _append(self, decided: Decided) -> None:
        before, entry = self.state, decided.entry
        self.log.append(decided)
        self.state = reduce(before, entry, self.rules)
        self.views.follow(decided, before, self.state)
        if isinstance(entry, Start | Admit):
            # the state folder that comes after another is never that one again
            self._former.update(entry.incarnations if isinstance(entry, Start) else (entry.incarnation,))
        if entry == self._ask:
            self._ask = None
        self._index()

    def _index(self) -> None:
        """Get ready for the next index."""
        state, mine = self.state, self.state.peer(self.me)
        may_vote = mine is not None and (mine.incarnation == self.incarnation or not state.length)
        self._proofs = Proofs(state, self.rules, self._signer, self.me, self.incarnation)
        self.sense = Sense(state, self.rules, self.views)
        self.consensus = Consensus(
            state.length,
            self._proofs.voters,
            self._proofs.quorum,
            self.rules.lying,
            self.me,
            may_vote,
            self,
            lambda ballot, peer: timeout(self.views, state, ballot, peer),
        )
        if self._promise is not None and self._promise.index == state.length:
            self.consensus.restore(self._promise)

    def want(self) -> Entry | None:
        """Return what this peer would propose now."""
        if self._wanted is None:
            self._wanted = (self.sense.want(),)
        return self._wanted[0]

    def allows(self, entry: Entry) -> bool:
        """Say whether the log allows an entry; the first one must also name this peer's state folder."""
        if refusal(self.state, entry, self.rules):
            return False
        if not isinstance(entry, Start):
            return True
        named = zip(self.state.roster, entry.incarnations, strict=True)
        return any(peer.number == self.me and name == self.incarnation for peer, name in named)

    def agrees(self, entry: Entry) -> bool:
        """Say whether an entry makes sense, as far as this peer sees now."""
        return self.sense.agrees(entry)

    def value(self, entry: Entry) -> bytes:
        """Return what a vote for an entry names."""
        return self._proofs.value(entry)

    def signed(self, item: Signed) -> Signed:
        """Return an item with this peer's signature."""
        return self._proofs.signed(item)

    def _renew_status(self) -> None:
        """Say about this peer what is true now; that its log is longer is no news."""
        silence, now = SILENCE * self.state.settings.heartbeat, self.now
        reaches = sorted([peer for peer in self._links if now - self._direct.get(peer, -1e12) <= silence])
        facts = (*self.conduct.facts, tuple(reaches), self._leaving, self._ask)
        if facts != self._facts:
            self._facts, self._news = facts, True
        elif self._status.length == self.state.length:
            return
        said = dict(zip(FACTS, facts, strict=True), boot=self._boot, length=self.state.length)
        self._status = replace(self._status, **said)
        self.views.take(self._status, self.state)

    def _write_promise(self) -> None:
        promise = self.consensus.promise
        if self.consensus.news or (self._promise is not None and promise != self._promise):
            self._promise = promise
            self._writes.append(promise)

    def _flush(self) -> list[ev.Action]:
        """Return the actions of a step: first what must be on disk, then what others hear, then the rest."""
        if due := self.now >= self._beat:
            self._beat = self.now + self.state.settings.heartbeat
            self._telling.look(self.sense, self._ask)
        sends: list[ev.Action] = []
        if self._links and (due or self._news or self._outbox):
            sends.append(ev.Send(tuple(sorted(self._links)), self._gossip(due)))
        sends += self._supply.next(self._links, self.state, self.log, self.now)
        wake = ev.Wake(self.consensus.due(self._beat))
        actions = [*map(ev.Write, self._writes), *sends, *self._others, *self._telling.now, wake]
        self._writes, self._others, self._outbox, self._telling.now, self._news = [], [], [], [], False
        return actions

    def _gossip(self, everything: bool) -> Gossip:
        statuses: tuple[Status, ...] = ()
        if everything or self._news:
            self._sequence += 1
            self._status = self.signed(replace(self._status, sequence=self._sequence))
            self.views.take(self._status, self.state)
            statuses = (self._status,)
        if not everything:
            proposals = tuple(item for item in self._outbox if isinstance(item, Proposal))
            votes = tuple(item for item in self._outbox if isinstance(item, Vote))
            return Gossip(self.state.run, statuses, proposals[-MOST_PROPOSALS:], votes)
        others = [status for peer, status in sorted(self.views.statuses.items()) if peer != self.me]
        others += [status for _, (status, _) in sorted(self.views.strangers.items())]
        proposals, votes = self.consensus.known()
        # own votes of an index that this very step decided
        last = tuple(item for item in self._outbox if isinstance(item, Vote) and item not in votes)
        return Gossip(self.state.run, (*statuses, *others), proposals, (*votes, *last))

    def _refuse(self, sender: int, why: str) -> None:
        self._stirred = True
        self.refused[sender] = self.refused.get(sender, 0) + 1
        self._telling.say(f"refused {sender} {why}", ev.Tell("refused", (sender,), why))
