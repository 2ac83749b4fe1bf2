"""A peer's own part in training and attempts: what it has done, and what the log says that it does next."""

from __future__ import annotations

from securedfl.network.core import events as ev
from securedfl.network.core.messages import Failure, Result, Started, Try
from securedfl.network.core.state import Rules, State
from securedfl.network.core.views import GRACE, Views

FACTS = ("ready", "forgot", "shared", "holds", "failed", "model", "reaches", "leaving", "asks")
"""What of a `Status` changes: what this peer has done (`Conduct.facts`), whom it hears, and what its operator does."""


class Conduct:
    """What this peer did in the round, and does next."""

    def __init__(self, me: int, incarnation: str, rules: Rules) -> None:
        self.me, self._incarnation, self._rules = me, incarnation, rules
        self.started = (-1, -1)
        self.record: Started | None = None
        self._ready = self._forgot = self._trained = self._model = -1
        self._shared, self._holds, self._failed = Try(), Result(), Failure()
        self._stored: dict[int, Result] = {}
        self._running: tuple[int, int] | None = None
        self._opened: tuple[int, ...] | None = None
        self._fetching: ev.Fetch | None = None
        self._over_since: float | None = None

    @property
    def facts(self) -> tuple[int, int, Try, Result, Failure, int]:
        """What this peer has done: the first of `FACTS`."""
        return self._ready, self._forgot, self._shared, self._holds, self._failed, self._model

    def take(self, event: ev.Event) -> None:
        """Take in what the data plane did."""
        match event:
            case ev.Ready(round):
                self._ready = round
            case ev.Forgot(round):
                self._forgot, self._ready = round, -1
            case ev.Shared(round, attempt):
                if self._running == (round, attempt):
                    self._shared = Try(round, attempt)
            case ev.Holds(round, attempt, digest):
                self._holds = self._stored[round] = Result(round, attempt, digest)
            case ev.Failed(round, attempt, lost, peers):
                if self._running == (round, attempt):
                    self._failed = Failure(round, attempt, lost, peers)

    def next(self, state: State, views: Views) -> list[ev.Action]:
        """Return what to do, now that the log says this."""
        done: list[ev.Action] = []
        self._leave(state, views, done)
        mine = state.peer(self.me)
        # a state folder that is not admitted knows nothing of what its peer shared before
        if state.phase != "idle" and self.me in state.members and mine and mine.incarnation == self._incarnation:
            self._attempt(state, done)
        self._result(state, views, done)
        # nobody trains before all peers have met
        begun = state.length and not state.over
        if begun and self._model == state.model.round and self._trained != state.round:
            self._trained = state.round
            done.append(ev.Train(state.round, again=self.started[0] == state.round))
        return done

    def _leave(self, state: State, views: Views, done: list[ev.Action]) -> None:
        """Stop an attempt that is over; one whose result is agreed may still end here by itself for a moment."""
        if self._running is None or (state.phase != "idle" and self._running == (state.round, state.attempt)):
            self._over_since = None
            return
        agreed = (state.model.round, state.model.attempt) == self._running and self._holds != state.model
        if agreed and (self._failed.round, self._failed.attempt) != self._running:
            self._over_since = views.now if self._over_since is None else self._over_since
            if views.now - self._over_since <= GRACE * state.settings.heartbeat:
                return
        done.append(ev.Stop(*self._running))
        self._running = self._opened = None

    def _attempt(self, state: State, done: list[ev.Action]) -> None:
        now = (state.round, state.attempt)
        if self._running is None and self.started < now and self._ready == state.round:
            self.started, self._running, self._opened = now, now, None
            self.record = Started(*now)
            done.append(ev.Share(*now, state.members))
        elif self._running is None and self.started == now and (self._failed.round, self._failed.attempt) != now:
            # begun before a restart: what it shared then is gone
            self._failed = Failure(*now)
        elif self._running is None and self._forgot == state.round:
            self._failed = Failure(*now)
        if self._running != now or state.phase != "committed" or not self._rules.can_lose:
            return
        if self.me in state.lost:
            done.append(ev.Stop(*now))
            self._running, self._failed = None, Failure(*now)
        elif self._opened != state.lost:
            self._opened = state.lost
            done.append(ev.Finish(*now, state.lost) if state.lost else ev.Open(*now))

    def _result(self, state: State, views: Views, done: list[ev.Action]) -> None:
        """Apply the agreed result, or fetch it; fetch one that others hold, if this peer cannot compute it."""
        wanted = state.model
        stored = self._stored.get(wanted.round)
        if wanted.round >= 0 and stored is not None and stored.digest == wanted.digest:
            if self._model != wanted.round:
                self._model = wanted.round
                self._stored = {round: result for round, result in self._stored.items() if round >= wanted.round}
                done.append(ev.Apply(wanted.round, wanted.digest))
            wanted = Result()
        elif wanted.round >= 0:
            self._model = -1
            if self._running == (wanted.round, wanted.attempt):
                return
        if wanted.round < 0 and state.phase == "committed":
            results = views.results(state, self._rules.lying)
            able = self._running is not None and self._failed.round != state.round
            holding = (self._holds.round, self._holds.attempt) == (state.round, state.attempt)
            wanted = results[0] if results and not able and not holding else Result()
        if wanted.round < 0:
            return
        fetch = ev.Fetch(wanted.round, wanted.attempt, wanted.digest, views.holders(wanted, state))
        if fetch.holders and fetch != self._fetching:
            self._fetching = fetch
            done.append(fetch)
