"""One real peer, as those see it who train: what round it is, and the average of what was trained for it.

The shell runs beside (`shell`). In short::

    with Peer(settings) as peer:
        while (task := peer.begin()) is not None:
            vector = ...  # trained for task.round from peer.model(), and stored
            outcome = peer.average(vector, task.round)
        peer.linger(absent=300)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

import numpy as np

from securedfl.errors import RunFolderError
from securedfl.network.core import events as ev
from securedfl.network.data.averages import Averaged, RunEndedError, attempts_of, check_own
from securedfl.network.progress import PeerSettings, Progress
from securedfl.network.shell import Shell, Told
from securedfl.network.wire.links import Links
from securedfl.network.words import names_of
from securedfl.privacy.ledger import Tried
from securedfl.protocols.steps import Array

MOMENT = 3.0
"""Seconds at the end of a run that need no word: others are about to be done, too."""


class Peer:
    """One peer of the federation, running until `close`. All methods may be called from any thread.

    Parameters
    ----------
    settings
        See `PeerSettings`.
    tell
        Told what people should know, in the shell's thread: what the core tells, and the names of the peers in it.
    """

    def __init__(self, settings: PeerSettings, *, tell: Told = lambda _tell, _names: None) -> None:
        self.settings, self._closed = settings, False
        self._shell = Shell(settings, tell)

    @property
    def links(self) -> Links:
        """The network of this peer."""
        return self._shell.links

    @property
    def progress(self) -> Progress:
        """Where the log and this peer are."""
        return self._shell.progress

    @property
    def trouble(self) -> str:
        """What ended this peer's part in the log, while its owner may still train; empty if it goes on."""
        failure = self._shell.failure
        return "" if failure is None else str(failure) or type(failure).__name__

    @property
    def attempts(self) -> dict[int, tuple[Tried, ...]]:
        """All attempts of every round, from the log."""
        return attempts_of(self._shell.entries(), self.settings.rules.can_lose)

    @property
    def names(self) -> dict[int, str]:
        """The names of all that ever belonged to the roster, by their numbers."""
        return dict(sorted((peer.number, peer.name) for peer in self.progress.state.ever))

    def begin(self) -> ev.Train | None:
        """Wait until there is a round to train for, and return it; None if all rounds are done."""
        return self._until(lambda now: now.todo is not None or now.done).todo

    def model(self) -> Array | None:
        """Return the newest model that this peer has, if any."""
        while True:
            applied = self.progress.applied
            try:
                return None if applied.round < 0 else self._shell.results.load(applied.round, applied.digest)
            except RunFolderError:
                # a newer one may have taken its place in this moment
                if self.progress.applied == applied:
                    raise

    def average(self, vector: Array, round: int) -> Averaged:
        """Average what was trained for a round, which is stored and will not change; return what all hold then."""
        check_own(vector, self.settings.name)
        state = self.progress.state
        if state.over and not state.ended and round >= state.round:
            raise RunEndedError(
                f"all {state.settings.rounds} averages of this run are done; `securedfl extend` adds more"
            )
        self._shell.updates[round] = vector
        self._shell.events.put(ev.Update(round))
        return self._outcome(round)

    def forget(self, round: int) -> Averaged:
        """Tell that the stored update of a round is lost, and wait for what the others make of it."""
        self._shell.events.put(ev.Update(round, whole=False))
        return self._outcome(round)

    def linger(
        self,
        absent: float,
        unless: Callable[[Progress], bool] = lambda _now: False,
        tell: Callable[[tuple[str, ...], tuple[str, ...]], None] = lambda _lacking, _asking: None,
    ) -> None:
        """Stay until all others know log and model too, and nobody's operator waits for a decision.

        Those that are gone, and what is not decided, get ``absent`` seconds. ``unless`` tells that there is something
        better to do; ``tell`` hears who lacks something and whose operator waits, if it takes longer than a moment.
        """

        def lacking(now: Progress) -> set[int]:
            return {peer.number for peer in now.state.roster}.difference(now.finished)

        def served(now: Progress) -> bool:
            return unless(now) or not (lacking(now) or now.asking)

        def nobody_left(now: Progress) -> bool:
            return unless(now) or set(now.present) <= set(now.finished)

        began = time.monotonic()
        now = self._until(served, min(absent, MOMENT), ended=True)
        if served(now):
            return
        tell(names_of(sorted(lacking(now)), now.state.roster), names_of(now.asking, now.state.roster))
        if not served(self._until(served, absent - (time.monotonic() - began), ended=True)):
            self._until(nobody_left, self.progress.state.settings.average, ended=True)

    def close(self) -> None:
        """Tell the others that this peer stops, and hang up."""
        if not self._closed:
            self._closed = True
            self._shell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _outcome(self, round: int) -> Averaged:
        """Wait until a round is over here, and tell what came of it."""

        def over(now: Progress) -> bool:
            if now.state.round == round:
                self.settings.check(now.state)
            return now.done or (now.task is not None and now.task.round > round)

        began = time.monotonic()
        now = self._until(over)
        self._shell.updates.pop(round, None)
        last = now.state.round - 1 if now.task is None or now.task.round <= round else now.task.round - 1
        vector, void = self.model(), now.applied.round != last
        tried = attempts_of(self._shell.entries(last), self.settings.rules.can_lose).get(last, ())
        return Averaged(
            last,
            np.empty(0) if vector is None else vector,
            members=() if void else tried[-1].members,
            attempts=max(1, sum(one.opened for one in tried)),
            tried=tried,
            fetched=not void and now.applied not in self._shell.computed,
            void=void,
            seconds=time.monotonic() - began,
            waited=max(0.0, now.since[1] - began) if now.since[0] == last else 0.0,
        )

    def _until(self, test: Callable[[Progress], bool], timeout: float = 1e9, *, ended: bool = False) -> Progress:
        """Wait for progress; raise what ended this peer, or the run, unless one that has ended is fine."""
        deadline = time.monotonic() + timeout
        with self._shell.changed:
            while True:
                if self._shell.failure is not None:
                    raise self._shell.failure
                now = self.progress
                if now.state.ended and not ended:
                    raise RunEndedError(f"an operator ended the run: {now.state.ended}")
                if test(now) or time.monotonic() >= deadline:
                    return now
                self._shell.changed.wait(min(deadline - time.monotonic(), 60.0))
