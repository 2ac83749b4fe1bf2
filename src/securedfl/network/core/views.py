"""What a peer sees of the others: who is there, who hears whom, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from securedfl.network.core.entries import Abandon, Admit, Ask, Remove, Renew
from securedfl.network.core.events import Send
from securedfl.network.core.messages import MOST_ENTRIES, Decided, Gossip, Result, Status
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
    """The newest status of every peer, and when it came, by this peer's clock."""

    def __init__(self, me: int, now: float) -> None:
        self.me, self.began = me, now
        self.now, self.round_since, self.not_before = now, now, now
        self.statuses: dict[int, Status] = {}
        self.strangers: dict[int, tuple[Status, float]] = {}
        self.admitted: dict[int, float] = {}
        self.granted: dict[Ask, int] = {}
        self.folders: dict[int, tuple[str, ...]] = {}
        self._heard: dict[int, float] = {}
        self._back: dict[int, float] = {}
        self._apart: dict[Pair, float] = {}

    def take(self, status: Status, state: State) -> bool:
        """Take a newer status, whose signature was checked; return whether it says more than a longer log."""
        peer = status.peer
        if not self.present(peer, state):
            self._back[peer] = self.now
            # who comes back has not been heard by others yet
            self._apart.update({pair: self.now for pair in self._apart if peer in pair})
        before = self.statuses.get(peer)
        if not (status.leaving and before and before.leaving):
            # the time when it was last heard; of a peer that leaves, the time when it said so
            self._heard[peer] = self.now
        self.statuses[peer] = status
        if before is None or before.reaches != status.reaches:
            self._look_at(peer, state)
        if before is None:
            return True
        return replace(before, sequence=status.sequence, length=status.length, signature=status.signature) != status

    def note_folder(self, status: Status) -> None:
        """Note before the first entry from which state folders a peer signed: a liar may name several."""
        others = (name for name in self.folders.get(status.peer, ()) if name != status.incarnation)
        self.folders[status.peer] = (status.incarnation, *others)[:MOST_FOLDERS]

    def follow(self, decided: Decided, before: State, after: State) -> None:
        """Take note of an entry that led from one state to another."""
        entry = decided.entry
        if after.round != before.round:
            self.round_since = self.not_before = self.now
        if isinstance(entry, Abandon) and entry.attempt > 0:
            pause = min(2.0 ** (entry.attempt - 1) * before.settings.heartbeat, before.settings.absent)
            self.not_before = self.now + pause
        if isinstance(entry, Admit | Remove):
            self._forget(entry.number)
            self.admitted[entry.number] = self.now
        if isinstance(entry, Renew) and entry.number != self.me:
            # what it signed with the key before proves nothing to others any more, and they would refuse to hear it
            self.statuses.pop(entry.number, None)
        if isinstance(entry, Ask):
            self.granted[entry] = decided.index

    def _forget(self, number: int) -> None:
        """Forget a peer that was removed, or whose state folder is another one now."""
        for known in (self.statuses, self.strangers, self._heard, self._back):
            known.pop(number, None)
        for pair in [pair for pair in self._apart if number in pair]:
            del self._apart[pair]

    def _look_at(self, peer: int, state: State) -> None:
        for other in (line.number for line in state.roster):
            pair = (min(peer, other), max(peer, other))
            if other == peer or (self._hears(peer, other) and self._hears(other, peer)):
                self._apart.pop(pair, None)
            else:
                self._apart.setdefault(pair, self.now)

    def _hears(self, one: int, other: int) -> bool:
        status = self.statuses.get(one)
        return status is not None and other in status.reaches

    def gone(self, peer: int, state: State) -> float:
        """Return for how many seconds a peer has been lost; 0 if it is there."""
        if peer == self.me:
            return 0.0
        silent = self.now - self._heard.get(peer, self.began)
        if silent > 0 and not self.leaving(peer):
            silent -= SILENCE * state.settings.heartbeat
        return silent if silent > 0 else 0.0

    def leaving(self, peer: int) -> bool:
        """Say whether a peer told that it stops."""
        status = self.statuses.get(peer)
        return status is not None and status.leaving

    def present(self, peer: int, state: State) -> bool:
        """Say whether a peer is there."""
        status = self.statuses.get(peer)
        if status is None or status.leaving:
            return False
        return peer == self.me or self.now - self._heard[peer] <= SILENCE * state.settings.heartbeat

    def lost(self, peer: int, state: State) -> bool:
        """Say whether to go on without a peer: it left, or the grace for its return is over."""
        return not self.present(peer, state) and (
            self.leaving(peer) or self.gone(peer, state) > GRACE * state.settings.heartbeat
        )

    def late(self, peer: int, state: State) -> bool:
        """Say whether a peer has had its time to get ready for the round, since that began or since it came back."""
        status = self.statuses.get(peer)
        since = max(self.round_since, self._back.get(peer, self.began))
        return (status is None or status.ready != state.round) and self.now - since > state.settings.train

    def forgot(self, peer: int, state: State) -> bool:
        """Say whether a peer lost its update of the round."""
        status = self.statuses.get(peer)
        return status is not None and status.forgot == state.round

    def ready(self, state: State) -> tuple[int, ...]:
        """Return who says that its update of the running round is ready, so that its messages can be waited for."""
        return tuple(peer for peer, status in sorted(self.statuses.items()) if status.ready == state.round)

    def finished(self, state: State) -> tuple[int, ...]:
        """Return who says that it has the newest model and knows the whole log; a void round leaves the model."""
        known = [(peer.number, self.statuses.get(peer.number)) for peer in state.roster]
        return tuple(p for p, s in known if s and s.model == state.model.round and s.length >= state.length)

    def asked(self, lying: int) -> list[Ask]:
        """Return what more operators ask for than may lie; what was granted since they asked is not asked for again."""
        wishes = [(peer, s.asks, s.length) for peer, s in self.statuses.items() if s.asks is not None]
        if not wishes:
            return []
        asks = [ask for _, ask, length in sorted(wishes) if length > self.granted.get(ask, -1)]
        return [ask for ask in dict.fromkeys(asks) if asks.count(ask) > lying]

    def apart(self, peers: Iterable[int], state: State, *, grace: bool) -> list[Pair]:
        """Return the pairs of these peers that do not hear each other, at all or for longer than the grace."""
        if not self._apart:
            return []
        among, patience = set(peers), GRACE * state.settings.heartbeat if grace else -1.0
        pairs = sorted(pair for pair in self._apart if among.issuperset(pair))
        return [pair for pair in pairs if self.now - self._apart[pair] > patience]

    def stuck(self, state: State, attempt: int) -> list[Pair]:
        """Return pairs of members, the second of which the first waits for in vain, in the attempt as it stands."""
        failures = [(peer, status.failed) for peer, status in self.statuses.items() if status.failed.peers]
        now = (state.round, attempt, state.lost)
        pairs = [(peer, f.peers) for peer, f in failures if (f.round, f.attempt, f.lost) == now]
        found = sorted((peer, other) for peer, others in pairs for other in others)
        waiting = {peer for peer, _ in found}
        # whoever waits itself is not to blame, unless they wait for each other
        return [pair for pair in found if pair[1] not in waiting] or found

    def broken(self, state: State, peer: int) -> bool:
        """Say whether a member can take no further part in the running attempt."""
        status = self.statuses.get(peer)
        if status is None or (status.failed.round, status.failed.attempt) != (state.round, state.attempt):
            return False
        return not status.failed.peers

    def hapless(self, state: State, peer: int) -> bool:
        """Say whether a peer failed in this round even after several attempts."""
        status = self.statuses.get(peer)
        return status is not None and status.failed.round == state.round and status.failed.attempt + 1 >= TRIES

    def holders(self, result: Result, state: State) -> tuple[int, ...]:
        """Return who is there and says that it has stored a result."""
        model = result.round if result == state.model else -2
        return tuple(
            peer
            for peer, status in sorted(self.statuses.items())
            if self.present(peer, state) and (status.holds == result or status.model == model)
        )

    def results(self, state: State, lying: int) -> list[Result]:
        """Return the results of the running attempt that more peers than may lie have stored, the most common first."""
        now = (state.round, state.attempt)
        found = {s.holds for s in self.statuses.values() if (s.holds.round, s.holds.attempt) == now}
        if not found:
            return []
        counts = {result: len(self.holders(result, state)) for result in found}
        return sorted((r for r in found if counts[r] > lying), key=lambda r: (-counts[r], r.digest))


class Supply:
    """Decided entries for those that lack them: how long the logs of others are, and what was sent to them."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}
        self._sent: dict[int, tuple[int, float]] = {}

    def next(self, peers: Iterable[int], state: State, log: Sequence[Decided], now: float) -> list[Send]:
        """Return the next entries for each of these peers; the same ones again only after a heartbeat."""
        sends, lengths = [], self.lengths
        for peer in sorted([peer for peer in peers if lengths.get(peer, state.length) < state.length]):
            length = lengths[peer]
            sent, at = self._sent.get(peer, (-1, now))
            if length != sent or now - at >= state.settings.heartbeat:
                self._sent[peer] = (length, now)
                sends.append(Send((peer,), Gossip(state.run, decided=tuple(log[length : length + MOST_ENTRIES]))))
        return sends


def cover(pairs: Iterable[Pair]) -> list[int]:
    """Return peers without whom none of the pairs is left, as few as is easy: the one in most pairs first."""
    left, chosen = list(pairs), []
    while left:
        often = {peer: sum(peer in pair for pair in left) for pair in left for peer in pair}
        worst = max(often, key=lambda peer: (often[peer], peer))
        chosen.append(worst)
        left = [pair for pair in left if worst not in pair]
    return chosen
