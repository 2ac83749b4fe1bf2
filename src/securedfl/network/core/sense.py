"""What makes sense now: which entry a peer would propose, and which fresh proposals of others it votes for.

This depends on what the peer sees, so peers may differ for a while. Nothing that must never happen is kept from
happening here, except one thing: a peer agrees to open sums only when it has the signed word of all members that they
have shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from securedfl.network.core import entries as en
from securedfl.network.core.entries import Entry
from securedfl.network.core.messages import Result
from securedfl.network.core.state import Rules, majority, refusal, voters
from securedfl.network.core.views import GRACE, SILENCE, TRIES, Pair, Views

Trouble = tuple[set[int], list[Pair]]


class Sense:
    """The opinions of a peer, from the log, the rules and its views."""

    def __init__(self, rules: Rules, views: Views) -> None:
        self.state, self.rules, self.views = views.state, rules, views

    def want(self) -> Entry | None:
        """Return what should be decided next, if anything."""
        candidates = (entry for entry in self._candidates() if entry is not None)
        return next((entry for entry in candidates if not refusal(self.state, entry, self.rules)), None)

    def waiting(self) -> tuple[str, tuple[int, ...]]:
        """Return why no attempt can begin, and for whom that waits; an empty text if it is not so."""
        state, views = self.state, self.views
        if state.phase != "idle" or state.over or self.want() is not None:
            return "", ()
        everybody = state.bound or tuple(peer.number for peer in state.roster)
        missing = tuple(peer for peer in everybody if not views.present(peer))
        if not state.length:
            return "the first start needs every peer once", missing
        if missing:
            return f"peers that are missing{self._too_few()}", missing
        apart = tuple(sorted(views.cover(views.apart(everybody, grace=False))))
        return "peers that do not hear all others" if apart else "", apart

    def _too_few(self) -> str:
        """Say in words that too few can take part; nothing if it is not so, or if all must anyway."""
        state = self.state
        if state.bound or not self.rules.can_lose:
            return ""
        enough = max(self.rules.least, len(state.roster) // 2 + 1)
        here = self.rules.pick(state, tuple(peer for peer in voters(state) if self.views.present(peer)))
        return f"; {enough} must take part, and {len(here)} can without them" if len(here) < enough else ""

    def training(self) -> tuple[int, ...]:
        """Return the members that the running attempt waits for until they have trained, if most have."""
        state, ready = self.state, self.views.ready()
        left = tuple(peer for peer in state.members if peer not in ready)
        return left if state.phase == "begun" and 2 * len(left) <= len(state.members) else ()

    def left_out(self) -> bool:
        """Say whether the rules keep this peer out of the running attempt, though it could take part."""
        state, views = self.state, self.views
        if state.phase == "idle" or views.me in state.members or state.bound or views.me not in voters(state):
            return False
        return views.me not in self.rules.pick(state, tuple(peer for peer in voters(state) if views.present(peer)))

    def _candidates(self) -> Iterator[Entry | None]:
        state = self.state
        if not state.length:
            yield self._start()
            return
        if state.phase == "idle":
            yield from self._strangers()
        yield from self._asked()
        if state.phase == "idle":
            yield self._void()
            yield self._begin()
        elif state.phase == "begun":
            yield self._abandon(self._trouble())
            yield self._commit()
        else:
            yield self._done()
            trouble = self._trouble()
            yield self._without(trouble)
            yield self._abandon(trouble)

    def _asked(self) -> list[en.Ask]:
        """Return what operators ask for and can have now.

        A peer is not removed while those who are left could decide nothing without it: nobody could admit the others.
        """
        views, lying = self.views, self.rules.lying

        def enough(entry: en.Ask) -> bool:
            if not isinstance(entry, en.Remove):
                return True
            left = [peer for peer in voters(self.state) if peer != entry.number]
            here = [peer for peer in left if views.present(peer) and peer not in views.strangers]
            return len(here) >= majority(len(left), lying)

        return [entry for entry in views.asked() if enough(entry)]

    def agrees(self, entry: Entry) -> bool:
        """Say whether a fresh proposal of an allowed entry makes sense to this peer."""
        match entry:
            case en.Begin(_, _, members):
                return self._fine(members)
            case en.Done(round, attempt, digest):
                mine, result = self.views.status(self.views.me).holds, Result(round, attempt, digest)
                # where sums differ somebody lied, and what others have is as good as this peer's own
                return mine == result or result in self.views.results()
            case en.End():
                # whatever the reasons are, which a liar can change all the time
                return any(isinstance(ask, en.End) for ask in self._asked())
            case en.Without(_, _, lost):
                helpless, pairs = self._trouble()
                return set(lost) <= {*self.state.lost, *helpless, *(peer for pair in pairs for peer in pair)}
            case en.Start():
                return self._start() is not None and all(
                    name in self.views.folders.get(peer.number, ())
                    for peer, name in zip(self.state.roster, entry.incarnations, strict=True)
                    if peer.number != self.views.me
                )
            case _:
                # the rest leaves no choice: this peer would propose the same
                return entry in self._candidates()

    def _start(self) -> en.Start | None:
        """Return the state folders of all; liars may be gone again, or name one folder here and another there."""
        views, roster = self.views, self.state.roster
        known = all(peer.number in views.statuses for peer in roster)
        missing = sum(not views.present(peer.number) for peer in roster)
        if not known or missing > self.rules.lying:
            return None
        return en.Start(tuple(views.statuses[peer.number].incarnation for peer in roster))

    def _strangers(self) -> list[en.Admit]:
        """Return the state folders to admit: heard now, while the admitted one is silent."""
        views, state = self.views, self.state
        return [
            en.Admit(peer, status.incarnation)
            for peer, (status, heard) in sorted(views.strangers.items())
            if views.now - heard <= views.silence
            and not views.present(peer)
            and views.now - views.admitted.get(peer, -1e12) > state.settings.absent
        ]

    def _fine(self, members: tuple[int, ...]) -> bool:
        """Say whether all members are there and hear each other, and nobody is left out without a reason."""
        views, state = self.views, self.state
        if not all(views.present(peer) for peer in members) or views.apart(members, grace=False):
            return False
        if state.bound or not self.rules.can_lose:
            return True
        if any(self._out(peer) for peer in members):
            return False
        left_out = [peer for peer in voters(state) if peer not in members and not self._excused(peer)]
        missed = [peer for peer in left_out if not views.apart((peer, *members), grace=True)]
        return set(self.rules.pick(state, tuple(sorted({*members, *missed})))) == set(members)

    def _out(self, peer: int) -> bool:
        views = self.views
        return views.lost(peer) or views.late(peer) or views.forgot(peer)

    def _excused(self, peer: int) -> bool:
        return self._out(peer) or (self.state.attempt >= TRIES and self.views.hapless(peer))

    def _begin(self) -> en.Begin | None:
        state, views = self.state, self.views
        choices = [state.bound or tuple(peer.number for peer in state.roster)]
        if self.rules.can_lose and not state.bound:
            left = tuple(peer for peer in voters(state) if not self._out(peer))
            choices = [self._together(peer for peer in left if not self._excused(peer)), self._together(left)]
            choices = [self.rules.pick(state, members) for members in choices]
        for members in choices:
            begin = en.Begin(state.round, state.attempt, members)
            if views.now >= views.not_before and not refusal(state, begin, self.rules) and self._fine(members):
                return begin
        return None

    def _together(self, peers: Iterable[int]) -> tuple[int, ...]:
        """Return the peers without some, so that those left hear each other."""
        among = tuple(peers)
        dropped = self.views.cover(self.views.apart(among, grace=True))
        return tuple(peer for peer in among if peer not in dropped)

    def _commit(self) -> en.Commit | None:
        state = self.state
        shared = all(self.views.status(peer).shared == state.now for peer in state.members)
        return en.Commit(state.round, state.attempt) if shared else None

    def _trouble(self) -> Trouble:
        """Return the members without whom the attempt must go on, if it can, and the pairs that keep it from that."""
        views, state = self.views, self.state
        left = {peer for peer in state.members if peer not in state.lost}
        helpless = {peer for peer in left if views.lost(peer) or views.broken(peer)}
        left -= helpless
        stuck = [] if helpless else [pair for pair in views.stuck() if left.issuperset(pair)]
        return helpless, [*views.apart(left, grace=True), *stuck]

    def _without(self, trouble: Trouble) -> en.Without | None:
        state, (helpless, pairs) = self.state, trouble
        lost = tuple(sorted({*state.lost, *helpless, *self.views.cover(pairs)}))
        return en.Without(state.round, state.attempt, lost) if lost != state.lost else None

    def _abandon(self, trouble: Trouble) -> en.Abandon | None:
        """Return the end of an attempt in which somebody is lost, failed, late, or apart, or that is in the way."""
        state, views = self.state, self.views
        if state.phase == "committed":
            if self._done() is None and views.split() > (views.grace if views.whole else self._long):
                return en.Abandon(state.round, state.attempt)
            if views.results():
                return None
            without = self._without(trouble)
            if without is not None and not refusal(state, without, self.rules):
                return None
        late = state.phase == "begun" and not state.bound and any(views.late(peer) for peer in state.members)
        return en.Abandon(state.round, state.attempt) if late or any(trouble) or self._in_the_way() else None

    def _in_the_way(self) -> bool:
        """Say whether operators ask for another roster: an attempt of which nothing was opened makes way for it."""
        if self.state.phase != "begun":
            return False
        asked = [ask for ask in self._asked() if not isinstance(ask, en.Settings | en.End)]
        return any(not refusal(replace(self.state, phase="idle"), ask, self.rules) for ask in asked)

    def _done(self) -> en.Done | None:
        """Return the result, once more disks have it than may lie or be lost.

        Not for ever: a liar can tell each that it has the same, and vote for nothing.
        """
        results = self.views.results()
        if not results or len(self.views.holders(results[0])) < self.rules.lying + 2:
            return None
        if self.views.split() > self._long:
            return None
        return en.Done(self.state.round, self.state.attempt, results[0].digest)

    @property
    def _long(self) -> float:
        """Seconds in which a member that gets no further says so, and fetches what others have."""
        return 2 * (self.state.settings.average + self.views.silence + self.views.grace)

    def _void(self) -> en.Void | None:
        """Return the end of a round that needs a lost update, or is bound to a peer that is lost for long or fails."""
        state, views = self.state, self.views
        left = tuple(peer for peer in state.bound or voters(state) if not views.forgot(peer))
        forgot = left != (state.bound or voters(state))
        # who is gone for long cannot take the place of a lost update
        here = tuple(peer for peer in left if views.gone(peer) <= state.settings.absent)
        if forgot and refusal(state, en.Begin(state.round, state.attempt, here), self.rules):
            return en.Void(state.round)
        absent = any(views.gone(peer) > state.settings.absent for peer in state.bound)
        failing = state.attempt > 2 * TRIES and bool(state.bound)
        return en.Void(state.round) if self.rules.can_lose and (absent or failing) else None

    def timeout(self, ballot: int, peer: int) -> float:
        """Return how long to wait for a peer in a ballot: longer each time, not at all for one that is not there."""
        if not self.views.present(peer):
            return 0.0
        return self.state.settings.heartbeat * (1 + min(ballot, GRACE * SILENCE))
