"""All of it together: events in, actions out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from securedfl.errors import RunFolderError
from securedfl.network.core import events as ev
from securedfl.network.core.conduct import Conduct
from securedfl.network.core.consensus import Consensus
from securedfl.network.core.entries import Settings, same_wish
from securedfl.network.core.messages import (
    MOST_ENTRIES,
    MOST_PROPOSALS,
    Boot,
    Decided,
    Gossip,
    Promise,
    Proposal,
    Signer,
    Status,
    Stored,
    Vote,
)
from securedfl.network.core.proofs import Log, Proofs
from securedfl.network.core.sense import Sense
from securedfl.network.core.state import Rules, State, reduce
from securedfl.network.core.telling import Telling
from securedfl.network.core.views import Supply, Views

MOST_EARLY = 8
"""Messages about the next index that are kept for each sender."""
NEVER = -1e12
UNPROVEN = "an entry without its votes"
"""Why an entry is refused; of the first one also if this peer's files say another beginning."""


class Core:
    """One peer's part in the log: make it of what is stored, then feed `step`.

    Parameters
    ----------
    stored
        What counts of the records on disk; what others stored, or a damaged log, is an error.
    me, incarnation, signer
        This peer's number, the random name of its state folder, and its key.
    genesis, rules
        The state before the first entry, and what the federation's files fix for good.
    now
        The time, by any clock that never goes back.

    Attributes
    ----------
    views, log
        What this peer sees, with the state that the log has led to; and the log's entries with their votes.
    proofs, sense, consensus
        Of the next index: what counts there, what this peer thinks of it, and the votes.
    conduct
        What this peer does.
    stretch
        Of how many old entries one keeps its votes.
    """

    stretch = MOST_ENTRIES

    def __init__(
        self, stored: Stored, *, me: int, genesis: State, rules: Rules, signer: Signer, incarnation: str, now: float
    ) -> None:
        before = stored.boot or Boot(genesis.run, incarnation, 0)
        if (before.run, before.incarnation) != (genesis.run, incarnation):
            raise RunFolderError("the state folder belongs to another run or peer; name the right folder")
        boot = replace(before, count=before.count + 1)
        self.me, self.rules, self._signer = me, rules, signer
        self.views, self.log = Views(me, genesis, rules.lying, now), Log(self.stretch)
        self.conduct = Conduct(Status(me, incarnation, boot.count, 0), rules, stored.started)
        self._supply, self._telling = Supply(), Telling()
        # when each linked peer was heard last on its own link
        self._links: dict[int, float] = {}
        self._beat, self._promise = now, stored.promise
        self._todo: list[ev.Action] = [ev.Write(boot)]
        self._outbox: list[Vote | Proposal] = []
        self._early: list[tuple[int, Gossip]] = []
        # whether others should hear of this at once, and whether anything follows from what was heard
        self._news, self._stirred = False, True
        self._index()
        self._take_entries(stored.log, self._append)
        # those without votes at the end, which a crash left alone, will come again
        if any(record.votes for index, record in stored.entries.items() if index >= self.state.length):
            raise RunFolderError(
                f"entry {self.state.length} of the stored log is not proven: the journal, or the certificates beside "
                "it, are damaged; move the folder `state` in this site's `out` away and start this peer again: the "
                "others will re-admit it"
            )

    @property
    def state(self) -> State:
        """What the log says."""
        return self.views.state

    def step(self, event: ev.Event, now: float) -> list[ev.Action]:
        """Take in what happened; return what to do, in this order."""
        now = self.views.now = max(now, self.views.now)
        # most messages say nothing new, and nothing follows from them
        self._stirred = not isinstance(event, ev.Received) or now >= self.consensus.due(self._beat)
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
            self.consensus.advance(self.views.now)
            self._write_promise()
            self._outbox += self.consensus.news
            self.consensus.news = []
            if self.consensus.decision is None:
                break
            self._decide(self.consensus.decision)
        self._todo += self.conduct.next(self.views)

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.Received(peer, message):
                self._receive(peer, message)
            case ev.Link(peer, True):
                self._links.setdefault(peer, NEVER)
                self._news = True
            case ev.Link(peer, False):
                self._links.pop(peer, None)
            case _:
                if isinstance(event, ev.Command):
                    self._telling.asked()
                self.conduct.take(event)

    def _receive(self, sender: int, message: Gossip) -> None:
        """Take in what counts; the first thing that does not ends it, so that nobody makes others check much."""
        if message.run != self.state.run:
            return self._refuse(sender, "a message of another run")
        self._links[sender] = self.views.now
        self._stirred = self._stirred or sender not in self.conduct.status.reaches
        if message.decided:
            following = [decided for decided in message.decided if decided.index >= self.state.length]
            if not self._take_entries(following, self._decide):
                return self._refuse(sender, UNPROVEN)
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
                if not self.proofs.sound(proposal):
                    return self._refuse(sender, "a proposal that is not sound")
                self.consensus.add_proposal(proposal)
                self._stirred = True
        for vote in message.votes:
            known = self.consensus.votes.get((vote.kind, vote.ballot), {})
            if vote.index == self.state.length and vote.peer not in known and vote.peer != self.me:
                if not self.proofs.voted(vote):
                    return self._refuse(sender, "a vote that is not signed by a voter")
                self._stirred = self.consensus.add_vote(vote) or self._stirred
        return None

    def _take_entries(self, entries: Sequence[Decided], take: Callable[[Decided], None]) -> bool:
        """Take the next entries, as far as they are proven; return False if one that should be is not."""
        while entries and entries[0].index == self.state.length:
            proven = self.proofs.run(entries, self.stretch)
            if not proven:
                return proven is not None
            for decided in proven:
                take(decided)
            entries = entries[len(proven) :]
            self._stirred = self._news = True
        return True

    def _take_status(self, status: Status) -> bool:
        """Take in something newer that a peer says about itself; return False if it did not sign that."""
        views, state = self.views, self.state
        known, peer = views.statuses.get(status.peer), state.peer(status.peer)
        if peer is None or status.peer == self.me:
            return True
        # before the first entry whoever comes is welcome, unless another folder of the same peer is there
        other = known and known.incarnation != status.incarnation and views.present(peer.number)
        admitted = peer.incarnation == status.incarnation if peer.incarnation else not (other or state.length)
        stranger, _ = views.strangers.get(status.peer, (None, 0.0))
        if not admitted and (status.incarnation in views.former or not status.newer(stranger)):
            return True
        if not self.proofs.said(status, status.incarnation):
            return False
        if not state.length:
            views.note_folder(status)
        if admitted:
            self._stirred = views.take(status) or status.length < state.length or self._stirred
        else:
            views.strangers[status.peer] = (status, views.now)
            self._stirred = True
            self._telling.capped(f"stranger {status.peer}", ev.Tell("stranger", (status.peer,), status.incarnation))
        return True

    def _decide(self, decided: Decided) -> None:
        self._todo.append(ev.Write(decided))
        self._append(decided)
        self._telling.decided(decided.entry)

    def _append(self, decided: Decided) -> None:
        before, asks = self.state.settings, self.conduct.status.asks
        self.log.append(decided)
        self.views.follow(decided, reduce(self.state, decided.entry, self.rules))
        # not as late as heartbeats were before
        self._beat = min(self._beat, self.views.now + self.state.settings.heartbeat)
        if same_wish(decided.entry, asks):
            self.conduct.take(ev.Command(None))
        elif isinstance(asks, Settings) and self.state.settings != before:
            # another operator was first: what this one wants is added to that, and undoes nothing of it
            wanted = asks.upon(before, self.state.settings)
            self.conduct.take(ev.Command(None if wanted == self.state.settings else wanted))
        self._index()

    def _index(self) -> None:
        """Get ready for the next index, of which some messages may be here already."""
        self.proofs = Proofs(self.state, self.rules, self._signer, self.me, self.conduct.status.incarnation)
        self.sense = Sense(self.rules, self.views)
        self.consensus = Consensus(self.proofs, self.sense)
        if self._promise is not None and self._promise.index == self.state.length:
            self.consensus.restore(self._promise)
        early, self._early = self._early, []
        for sender, message in early:
            self._take_votes(sender, message)

    def _renew_status(self) -> None:
        """Say about this peer what is true now; that its log is longer is no news."""
        now, silence = self.views.now, self.views.silence
        reaches = sorted([peer for peer, heard in self._links.items() if now - heard <= silence])
        said = replace(self.conduct.status, reaches=tuple(reaches), length=self.state.length)
        self.conduct.status = said
        if said != self.views.statuses.get(self.me):
            self._news = self.views.take(said) or self._news

    def _write_promise(self) -> None:
        promise, before = self.consensus.promise, self._promise
        if before is None or before.index != promise.index:
            before = Promise(promise.index, 0)
        if self.consensus.news or promise != before:
            self._promise = promise
            self._todo.append(ev.Write(promise))

    def _flush(self) -> list[ev.Action]:
        """Return the actions of a step: first what must be on disk, then what others hear, then the rest."""
        if due := self.views.now >= self._beat:
            self._beat = self.views.now + self.state.settings.heartbeat
            self._telling.look(self.sense, self.conduct.status.asks)
        sends: list[ev.Action] = []
        if self._links and (due or self._news or self._outbox):
            # who leaves passes on what others may have heard from nobody else
            sends.append(ev.Send(tuple(sorted(self._links)), self._gossip(due or self.conduct.status.leaving)))
        sends += self._supply.next(self._links, self.state, self.log, self.views.now)
        writes = [action for action in self._todo if isinstance(action, ev.Write)]
        others = [action for action in self._todo if not isinstance(action, ev.Write)]
        actions = [*writes, *sends, *others, *self._telling.now, ev.Wake(self.consensus.due(self._beat))]
        self._todo, self._outbox, self._telling.now, self._news = [], [], [], False
        return actions

    def _gossip(self, everything: bool) -> Gossip:
        statuses: tuple[Status, ...] = ()
        if (everything or self._news) and not self.proofs.outdated:
            said = self.conduct.status
            self.conduct.status = self.proofs.signed(replace(said, sequence=said.sequence + 1))
            self.views.take(self.conduct.status)
            statuses = (self.conduct.status,)
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
        self._telling.say(f"refused {sender} {why}", ev.Tell("refused", (sender,), why))
