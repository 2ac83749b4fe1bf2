"""What a peer sees: what the log says, who is there, who hears whom, and since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from msgspec.structs import replace

from securedfl.network.core.entries import Abandon, Admit, Ask, End, Remove, Renew, Settings, Start
from securedfl.network.core.events import Send
from securedfl.network.core.messages import NO_RESULT, Decided, Gossip, Result, Status
from securedfl.network.core.proofs import Log
from securedfl.network.core.state import State

SILENCE = 4
"""A peer is lost when nothing new was heard of it, from anybody, for so many heartbeats."""
GRACE = 2
"""For so many heartbeats more nobody acts on a loss, or on a link that is down."""
TRIES = 3
"""Attempts of a round after which peers that only make it fail are left out."""
MOST_FOLDERS = 8
"""State folders of one peer that are remembered before the first entry."""

Pair = tuple[int, int]


class Views:
    """The state that the log has led to, the newest status of every peer, and when it came, by this peer's clock.

    Attributes
    ----------
    state, now
        What the log says, and the time.
    statuses, strangers
        What peers said last about themselves; of those with a state folder that is not admitted, and when.
    former
        The state folders that are or were admitted; one that comes after another is never that one again.
    folders
        From which folders each peer spoke before the first entry.
    admitted, granted
        When a state folder was admitted last, by peer; at which index a wish was granted last.
    round_since, not_before
        When this round began here, and when its next attempt may.
    """

    def __init__(self, me: int, state: State, lying: int, now: float) -> None:
        self.me, self.state, self._lying, self.began = me, state, lying, now
        self.now, self.round_since, self.not_before = now, now, now
        self.statuses: dict[int, Status] = {}
        self.strangers: dict[int, tuple[Status, float]] = {}
        self.former: set[str] = set()
        self.folders: dict[int, tuple[str, ...]] = {}
        self.admitted: dict[int, float] = {}
        self.granted: dict[Ask, int] = {}
        self._settled = -1
        self._heard: dict[int, float] = {}
        self._back: dict[int, float] = {}
        self._apart: dict[Pair, float] = {}
        self._held: dict[int, float] = {}

    @property
    def silence(self) -> float:
        """Seconds without a word after which a peer is lost."""
        return SILENCE * self.state.settings.heartbeat

    @property
    def grace(self) -> float:
        """Seconds more until somebody acts on that."""
        return GRACE * self.state.settings.heartbeat

    def status(self, peer: int) -> Status:
        """Return what a peer said last; if nothing was heard of it, a status that says nothing."""
        return self.statuses.get(peer) or Status(peer, "", 0, 0)

    def take(self, status: Status) -> bool:
        """Take a newer status, whose signature was checked; return whether it says more than a longer log."""
        peer = status.peer
        if not self.present(peer):
            self._back[peer] = self.now
            # who comes back has not been heard by others yet
            self._apart.update({pair: self.now for pair in self._apart if peer in pair})
        before = self.statuses.get(peer)
        if not (status.leaving and before and before.leaving):
            # the time when it was last heard; of a peer that leaves, the time when it said so
            self._heard[peer] = self.now
        self.statuses[peer] = status
        if status.holds.which == self.state.now:
            self._held.setdefault(peer, self.now)
        if before is None or before.reaches != status.reaches:
            self._look_at(peer)
        if before is None:
            return True
        return replace(before, sequence=status.sequence, length=status.length, signature=status.signature) != status

    def note_folder(self, status: Status) -> None:
        """Note before the first entry from which state folders a peer signed: a liar may name several."""
        others = (name for name in self.folders.get(status.peer, ()) if name != status.incarnation)
        self.folders[status.peer] = (status.incarnation, *others)[:MOST_FOLDERS]

    def follow(self, decided: Decided, after: State) -> None:
        """Take note of an entry that led to another state."""
        before, self.state = self.state, after
        if (after.now, after.phase) != (before.now, before.phase):
            # what is said before sums are opened counts for nothing
            self._held = {}
        if after.round != before.round:
            self.round_since = self.not_before = self.now
        match decided.entry:
            case Abandon(_, attempt) if attempt > 0:
                pause = min(2.0 ** (attempt - 1) * before.settings.heartbeat, before.settings.absent)
                self.not_before = self.now + pause
            case Start(incarnations):
                self.former.update(incarnations)
            case Admit(number, incarnation):
                self.former.add(incarnation)
                self._forget(number)
            case Remove(number):
                self._forget(number)
            case Renew(number) if number != self.me:
                # what it signed with the key before proves nothing to others any more, and they would refuse to hear it
                self.statuses.pop(number, None)
        if isinstance(decided.entry, Ask):
            self.granted[decided.entry] = decided.index
        if isinstance(decided.entry, Settings):
            self._settled = decided.index

    def _forget(self, number: int) -> None:
        """Forget a peer that was removed, or whose state folder is another one now."""
        for known in (self.statuses, self.strangers, self._heard, self._back):
            known.pop(number, None)
        self._apart = {pair: since for pair, since in self._apart.items() if number not in pair}
        self.admitted[number] = self.now

    def _look_at(self, peer: int) -> None:
        for other in (line.number for line in self.state.roster):
            pair = (min(peer, other), max(peer, other))
            if other == peer or (other in self.status(peer).reaches and peer in self.status(other).reaches):
                self._apart.pop(pair, None)
            else:
                self._apart.setdefault(pair, self.now)

    def gone(self, peer: int) -> float:
        """Return for how many seconds a peer has been lost; 0 if it is there."""
        patience = 0.0 if self.status(peer).leaving else self.silence
        return max(0.0, self._silent(peer) - patience)

    def present(self, peer: int) -> bool:
        """Say whether a peer is there."""
        status = self.statuses.get(peer)
        return status is not None and not status.leaving and self._silent(peer) <= self.silence

    def lost(self, peer: int) -> bool:
        """Say whether to go on without a peer: it left, or the grace for its return is over."""
        return not self.present(peer) and (self.status(peer).leaving or self.gone(peer) > self.grace)

    def late(self, peer: int) -> bool:
        """Say whether a peer has had its time to get ready for the round, since that began or since it came back."""
        since = max(self.round_since, self._back.get(peer, self.began))
        return self.status(peer).ready != self.state.round and self.now - since > self.state.settings.train

    def forgot(self, peer: int) -> bool:
        """Say whether a peer lost its update of the round."""
        return self.status(peer).forgot == self.state.round

    def ready(self) -> tuple[int, ...]:
        """Return whose update of the running round was ready, so that its messages can be waited for.

        Who lost it since has it in memory in the attempt that it is in, or says that it can take no part.
        """
        round = self.state.round
        return tuple(peer for peer, said in sorted(self.statuses.items()) if round in (said.ready, said.forgot))

    def finished(self) -> tuple[int, ...]:
        """Return who says that it has the newest model and knows the whole log; a void round leaves the model."""
        state = self.state
        known = [self.statuses[peer.number] for peer in state.roster if peer.number in self.statuses]
        return tuple(s.peer for s in known if s.model == state.model.round and s.length >= state.length)

    def asked(self) -> list[Ask]:
        """Return what more operators ask for than may lie; what was granted since they asked is not asked for again."""
        wishes = [(peer, s.asks, s.length) for peer, s in self.statuses.items() if s.asks is not None]
        if not wishes:
            return []
        asks = [ask for _, ask, length in sorted(wishes) if length > self._granted(ask)]
        # whatever their reasons are, those who want the run to end want the same
        ends = Counter(ask for ask in asks if isinstance(ask, End)).most_common(1)
        asks = [ends[0][0] if isinstance(ask, End) else ask for ask in asks]
        return [ask for ask in dict.fromkeys(asks) if asks.count(ask) > self._lying]

    def _granted(self, ask: Ask) -> int:
        """Return where the log last did this; other settings than were known to who asked must be seen by it first."""
        return self._settled if isinstance(ask, Settings) else self.granted.get(ask, -1)

    def apart(self, peers: Iterable[int], *, grace: bool) -> list[Pair]:
        """Return the pairs of these peers that do not hear each other, at all or for longer than the grace."""
        if not self._apart:
            return []
        among, patience = set(peers), self.grace if grace else -1.0
        pairs = sorted(pair for pair in self._apart if among.issuperset(pair))
        return [pair for pair in pairs if self.now - self._apart[pair] > patience]

    def cover(self, pairs: Iterable[Pair]) -> list[int]:
        """Return peers without whom none of the pairs is left, as few as is easy: the most isolated one first.

        That is the one that is apart from most peers that are there, within the grace or not, because links to a killed
        peer do not all end at once; then the one in most of the pairs, and then one that has been silent for a while.
        Where all that is equal they take turns, because one of the two may lie. Those that may lie can name anybody, so
        that so few count for nothing.
        """
        left, chosen = set(pairs), list[int]()
        others: dict[int, set[int]] = {}
        for one, other in left:
            others.setdefault(one, set()).add(other)
            others.setdefault(other, set()).add(one)
        apart = left | {pair for pair in self._apart if all(peer == self.me or self.present(peer) for peer in pair)}
        turn = self.state.round + self.state.attempt
        while left:
            often, all_over = Counter(chain(*left)), Counter(chain(*apart))
            few = self._lying
            blame = {p: (max(all_over[p], few), max(often[p], few), self._silent(p) > self.grace) for p in often}
            tied = sorted(p for p in blame if blame[p] == max(blame.values()))
            worst = tied[-1 - turn % len(tied)]
            chosen.append(worst)
            left, apart = ({pair for pair in some if worst not in pair} for some in (left, apart))
        # one that was apart from others chosen after it alone need not go
        for peer in list(chosen):
            if others[peer].issubset(chosen):
                chosen.remove(peer)
        return chosen

    def _silent(self, peer: int) -> float:
        return 0.0 if peer == self.me else self.now - self._heard.get(peer, self.began)

    def stuck(self) -> list[Pair]:
        """Return pairs of members, the second of which the first waits for in vain, in the attempt as it stands."""
        now, lost = self.state.now, self.state.lost
        failures = [(peer, s.failed) for peer, s in self.statuses.items() if s.failed.peers]
        waits = [(peer, f.peers) for peer, f in failures if f.which == now and f.lost == lost]
        found = sorted((peer, other) for peer, others in waits for other in others)
        waiting = {peer for peer, _ in found}
        # whoever waits itself is not to blame, unless they wait for each other
        return [pair for pair in found if pair[1] not in waiting] or found

    def broken(self, peer: int) -> bool:
        """Say whether a member can take no further part in the running attempt."""
        failed = self.status(peer).failed
        return failed.which == self.state.now and not failed.peers

    def hapless(self, peer: int) -> bool:
        """Say whether a peer failed in this round even after several attempts, or several waited for it in vain.

        So many that one of them does not lie, and more than one, as of two with a bad link each waits for the other.
        """
        known = {p: s.failed for p, s in self.statuses.items() if s.failed.round == self.state.round}
        failed = {p: one for p, one in known.items() if one.attempt + 1 >= TRIES}
        times = Counter(chain.from_iterable(set(one.peers) for one in failed.values()))
        blamed = {p for p, count in times.items() if count > max(1, self._lying)}
        return peer in blamed or (peer in failed and blamed.isdisjoint(failed[peer].peers))

    def split(self) -> float:
        """Return for how long members have had results of the attempt that make no average; 0 while more may come.

        Those that may lie need not come. Somebody sent other sums to some than to others, lies about its result, or
        says nothing of it where so few are left that the others alone are not believed.
        """
        left = set(self.state.members).difference(self.state.lost)
        held = [since for peer, since in self._held.items() if peer in left]
        # who has failed comes to none by itself, and takes none of which nobody knows whether it is the right one
        failed = [peer for peer in left.difference(self._held) if self.status(peer).failed.which == self.state.now]
        few = len(held) + len(failed) < max(2, len(left) - max(1, self._lying))
        agreed = not self.odd() and not 0 < len(self._said()) <= self._lying
        # all may have failed, and somebody may have told of a result before there could be one
        return 0.0 if few or not held or agreed else self.now - max(held)

    @property
    def whole(self) -> bool:
        """Whether all members that are left say that they have a result of the attempt."""
        return set(self.state.members).difference(self.state.lost) <= self._held.keys()

    def odd(self) -> tuple[int, ...]:
        """Return the members that say to have another result of the attempt than most do; all, if no result leads."""
        held = self._said()
        (usual, most), *others = Counter(held.values()).most_common() or [(NO_RESULT, 0)]
        if not others:
            return ()
        return tuple(peer for peer, result in held.items() if result != usual or others[0][1] == most)

    def _said(self) -> dict[int, Result]:
        """Return the members that say to have a result of the attempt, with it."""
        said = {peer: self.status(peer).holds for peer in self.state.members}
        return {peer: result for peer, result in said.items() if result.which == self.state.now}

    def holders(self, result: Result) -> tuple[int, ...]:
        """Return who is there and says that it has stored a result."""
        model = result.round if result == self.state.model else -2
        return tuple(
            peer
            for peer, status in sorted(self.statuses.items())
            if self.present(peer) and (status.holds == result or status.model == model)
        )

    def results(self) -> list[Result]:
        """Return the results of the running attempt that more peers than may lie have stored, the most common first."""
        now = self.state.now
        found = {s.holds for s in self.statuses.values() if s.holds.which == now}
        counts = {result: len(self.holders(result)) for result in found}
        return sorted((r for r in found if counts[r] > self._lying), key=lambda r: (-counts[r], r.digest))


class Supply:
    """Decided entries for those that lack them: how long the logs of others are, and what was sent to them."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}
        self._sent: dict[int, tuple[int, float]] = {}

    def next(self, peers: Iterable[int], state: State, log: Log, now: float) -> list[Send]:
        """Return the next entries for each of these peers; the same ones again only after a heartbeat."""
        sends, lengths = [], self.lengths
        for peer in sorted([peer for peer in peers if lengths.get(peer, state.length) < state.length]):
            length = lengths[peer]
            sent, at = self._sent.get(peer, (-1, now))
            if length != sent or now - at >= state.settings.heartbeat:
                self._sent[peer] = (length, now)
                sends.append(Send((peer,), Gossip(state.run, decided=log.portion(length))))
        return sends
