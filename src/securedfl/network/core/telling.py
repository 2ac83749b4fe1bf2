"""What people are told: each thing once, until it changes."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from securedfl.network.core.entries import Ask, Begin, Entry, Settings, Try
from securedfl.network.core.events import Tell
from securedfl.network.core.messages import NO_TRY
from securedfl.network.core.sense import Sense
from securedfl.network.core.state import needed, refusal, voters

MOST_LINES = 100
"""Lines about one thing that a liar can change all the time."""


class Telling:
    """What was said last about each thing, and what is to be said now."""

    def __init__(self) -> None:
        self.now: list[Tell] = []
        self._said: dict[str, Tell] = {}
        # the attempt for which most have trained and some have not, and since when
        self._slow: tuple[Try, float] = (NO_TRY, 0.0)
        self._count: Counter[str] = Counter()

    def say(self, about: str, tell: Tell) -> None:
        """Say something, unless it was the last that was said about this."""
        if self._said.get(about) != tell:
            self._said[about] = tell
            self.now.append(tell)

    def decided(self, entry: Entry) -> None:
        """Say what was decided. That an attempt begins says that nobody is waited for any more."""
        self.say("decided", Tell("decided", entry=entry))
        if isinstance(entry, Begin):
            self._said.pop("waiting", None)

    def asked(self) -> None:
        """Take note that the operator wants something, or nothing any more: each wish has an answer of its own."""
        self._said.pop("unable", None)

    def look(self, sense: Sense, ask: Ask | None) -> None:
        """Say who is lost or back, who is apart, what is waited for, and why what was asked for is not possible."""
        views, state = sense.views, sense.views.state
        roster = [peer.number for peer in state.roster]
        for peer in (number for number in roster if number != views.me):
            if views.lost(peer):
                self.say(f"peer {peer}", Tell("lost", (peer,)))
            elif views.present(peer):
                self._change(f"peer {peer}", Tell("back", (peer,)))
        present = [peer for peer in roster if views.present(peer)]
        apart = tuple(peer for pair in views.apart(present, grace=True) for peer in pair)
        (self.say if apart else self._change)("apart", Tell("apart", apart))
        if odd := views.odd():
            self.capped("odd", Tell("odd", odd, f"round {state.round}"))
        for peer, status in views.statuses.items() if sense.rules.lying else ():
            # some of them must agree
            if status.asks is not None and peer != views.me:
                self.capped(f"wish of {peer}", Tell("asked", (peer,), entry=status.asks))
        why, missing = sense.waiting()
        enough, absent = needed(state, sense.rules), tuple(p for p in voters(state) if not views.present(p))
        if state.length and len(voters(state)) - len(absent) < enough:
            why, missing = f"{enough} of {len(voters(state))} peers must be there to decide anything", absent
        if not why:
            why, missing = self._training(sense)
        (self.say if why else self._change)("waiting", Tell("waiting", missing, why))
        self._left_out(sense)
        # that an attempt is running passes; what it keeps settings from is final
        when = state if isinstance(ask, Settings) else replace(state, phase="idle")
        reason = "" if ask is None else refusal(when, ask, sense.rules)
        if reason:
            self.say("unable", Tell("unable", detail=reason, entry=ask))

    def _training(self, sense: Sense) -> tuple[str, tuple[int, ...]]:
        """Return who still trains where most are done, if that has been so for a while."""
        state, now, left = sense.state, sense.views.now, sense.training()
        if left and self._slow[0] != state.now:
            self._slow = (state.now, now)
        if not left or now - self._slow[1] <= sense.views.silence:
            return "", ()
        return f"peers that still train, for which they have `train` = {state.settings.train:g} s", left

    def _left_out(self, sense: Sense) -> None:
        """Say who was not ready in time, and if the rules keep this peer out."""
        views, state = sense.views, sense.state
        outside = [line.number for line in state.roster if line.number not in state.members]
        for peer in outside if sense.rules.can_lose and state.phase != "idle" else ():
            if views.late(peer) and views.present(peer):
                self.say(f"late {peer}", Tell("late", (peer,), f"round {state.round}"))
        if sense.left_out():
            self.say("left out", Tell("left out", (views.me,)))
        elif views.me in state.members:
            self._said.pop("left out", None)

    def capped(self, about: str, tell: Tell) -> None:
        """Say something that a liar may change all the time, so often and no more."""
        if self._said.get(about) != tell and self._count[about] < MOST_LINES:
            self._count[about] += 1
            self.say(about, tell)

    def _change(self, about: str, tell: Tell) -> None:
        if about in self._said:
            self.say(about, tell)
