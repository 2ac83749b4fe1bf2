"""A peer's own part in training and attempts: what it has done, and what the log says that it does next."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from securedfl.network.core import events as ev
from securedfl.network.core.entries import Try
from securedfl.network.core.messages import NO_RESULT, NO_TRY, Failure, Result, Started, Status
from securedfl.network.core.state import Rules, State
from securedfl.network.core.views import Views


class Conduct:
    """What this peer did in the round, and does next.

    Attributes
    ----------
    status
        What it says about itself; whom it hears, and how long its log is, is filled in by the core.
    started
        The attempt that it began last, in this process or before.
    """

    def __init__(self, status: Status, rules: Rules, started: Started | None) -> None:
        self.status, self._rules = status, rules
        self.started = started.which if started else NO_TRY
        self._trained = -1
        self._stored: set[tuple[int, bytes]] = set()
        self._running: Try | None = None
        self._opened: tuple[int, ...] | None = None
        self._fetching: ev.Fetch | None = None

    def take(self, event: ev.Event) -> None:
        """Take in what the data plane did, and what the operator wants."""
        match event:
            case ev.Update(round, True):
                self._say(ready=round)
            case ev.Update(round, False):
                self._say(ready=-1, forgot=round)
            case ev.Shared(attempt) if attempt == self._running:
                self._say(shared=attempt)
            case Result():
                self._stored.add((event.round, event.digest))
                # one of an earlier attempt, which comes late, hides none
                if event.which >= self.status.holds.which:
                    self._say(holds=event)
            case Failure() if event.which == self._running:
                self._say(failed=event)
            case ev.Command(ask):
                self._say(asks=ask)
            case ev.Leaving():
                self._say(leaving=True)

    def _say(self, **facts: Any) -> None:
        self.status = replace(self.status, **facts)

    def next(self, views: Views) -> list[ev.Action]:
        """Return what to do, now that the log says this."""
        state, done = views.state, list[ev.Action]()
        self._leave(views, done)
        mine = state.peer(self.status.peer)
        # a state folder that is not admitted knows nothing of what its peer shared before
        admitted = mine is not None and mine.incarnation == self.status.incarnation
        if state.phase != "idle" and self.status.peer in state.members and admitted:
            self._attempt(state, done)
        self._result(views, done)
        # nobody trains before all peers have met
        begun = state.length and not state.over
        if begun and self.status.model == state.model.round and self._trained != state.round:
            self._trained = state.round
            done.append(ev.Train(state.round, again=self.started.round == state.round))
        return done

    def _leave(self, views: Views, done: list[ev.Action]) -> None:
        """Stop an attempt that is over; one whose result is agreed may still end here by itself for a moment."""
        state = views.state
        if self._running is None or (state.phase != "idle" and self._running == state.now):
            return
        agreed = state.model.which == self._running and self.status.holds != state.model
        in_time = views.now - views.round_since <= views.grace
        if not (agreed and in_time and self.status.failed.which != self._running):
            self._stop(done)

    def _stop(self, done: list[ev.Action]) -> None:
        done.append(ev.Stop())
        self._running = self._opened = None

    def _attempt(self, state: State, done: list[ev.Action]) -> None:
        """Begin the attempt that the log has begun, then open it; or say that this peer can take no part in it."""
        now, said = state.now, self.status
        if self._running is None and self.started < now and said.ready == state.round:
            self.started = self._running = now
            done += [ev.Write(Started(now.round, now.attempt)), ev.Share(now, state.members)]
        elif self._running is None:
            # what it shared before a restart is gone
            restarted = self.started == now and said.failed.which != now
            if restarted or said.forgot == state.round:
                self._say(failed=Failure(now.round, now.attempt))
        if self._running != now or state.phase != "committed" or not self._rules.can_lose:
            return
        if said.peer in state.lost:
            self._stop(done)
            self._say(failed=Failure(now.round, now.attempt))
        elif self._opened != state.lost:
            self._opened = state.lost
            done.append(ev.Open(state.lost))

    def _result(self, views: Views, done: list[ev.Action]) -> None:
        """Apply the agreed result, or fetch it; fetch one that others hold, if this peer cannot compute it."""
        state, said, wanted = views.state, self.status, views.state.model
        if (wanted.round, wanted.digest) in self._stored:
            if said.model != wanted.round:
                self._say(model=wanted.round)
                self._stored = {stored for stored in self._stored if stored[0] >= wanted.round}
                done.append(ev.Apply(wanted))
            wanted = NO_RESULT
        elif wanted != NO_RESULT:
            self._say(model=-1)
            if self._running == wanted.which:
                return
        if wanted == NO_RESULT and state.phase == "committed":
            results = views.results()
            able = self._running is not None and said.failed.round != state.round
            if results and not able and said.holds.which != state.now:
                wanted = results[0]
        if wanted == NO_RESULT:
            return
        fetch = ev.Fetch(wanted, views.holders(wanted))
        if fetch.holders and fetch != self._fetching:
            self._fetching = fetch
            done.append(fetch)
