"""Recovery: those left of a committed attempt get its result after all, from whoever holds it or with stand-ins.

Nothing here can open another sum than the one that was committed to: a holder hands on that very result, and stand-ins
complete the total over *all* members from sums of whole groups, which are the same whoever adds them up. So who takes
part need not be decided by consensus: peers that disagree about it lose time, nothing else.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from securedfl.errors import PeerLostError
from securedfl.network.core.board import Board
from securedfl.network.core.decisions import Decisions
from securedfl.network.core.members import GRACE, Gathering
from securedfl.network.core.results import Results
from securedfl.network.core.rules import Rules
from securedfl.network.core.trial import Trial
from securedfl.network.wire.control import number, peers_of
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.frames import FrameError
from securedfl.protocols.steps import Array

log = logging.getLogger("securedfl.session")

TRIES = 4
"""How often those left try before the average is abandoned: every loss on the way costs one."""

_OVER = "over"


@dataclass(frozen=True)
class _Holder:
    """A peer that holds the result."""

    peer: int


class Recovery:
    """Gets the result of an attempt that broke off after its commit.

    Parameters
    ----------
    endpoint, board, rules, decisions, gathering, results
        Of the session.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        board: Board,
        rules: Rules,
        decisions: Decisions,
        gathering: Gathering,
        results: Results,
    ) -> None:
        self._endpoint, self._board, self._rules = endpoint, board, rules
        self._decisions, self._gathering, self._results = decisions, gathering, results
        self._me = endpoint.me
        self._offer: tuple[int, int, int, tuple[int, ...]] | None = None

    def take(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take another peer's offer to finish with those left."""
        left = peers_of(message, "left", len(self._endpoint.roster))
        at = (number(message, "round"), number(message, "epoch"), number(message, "attempt"))
        if self._offer is None or at > self._offer[:3]:
            self._offer = (*at, left)
        return {"kind": "ok"}

    def run(self, trial: Trial) -> Array | None:
        """Return the result, or None if it cannot be had; the roster then decides what becomes of the round."""
        for _ in range(TRIES):
            self._board.say(phase="recovering")
            look = partial(self._look, trial, time.monotonic())
            found = self._board.wait(look, self._rules.deadlines.average)
            if not found or found == _OVER:
                return None
            try:
                if isinstance(found, _Holder):
                    return self._copy(trial, found.peer)
                attempt, left = found
                names = ", ".join(self._endpoint.roster[peer].name for peer in left)
                log.info("round %d: finishing with %s", trial.place.round, names)
                return trial.finish_with(left, attempt)
            except (PeerLostError, FrameError) as error:
                log.warning("round %d: recovery broke off: %s", trial.place.round, error)
        return None

    def _look(self, trial: Trial, began: float) -> Any:
        """Return a holder of the result, an attempt to finish with those left, or `_OVER` if neither can be."""
        round, epoch, waited = trial.place.round, trial.epoch, time.monotonic() - began
        statuses = {peer: self._board.status(peer) for peer in range(len(self._endpoint.roster))}
        if self._decisions.outcome(round, epoch) or any(s.finished >= round for s in statuses.values()):
            return _OVER
        holders = [p for p in self._gathering.holders(round, epoch) if self._board.present(p)]
        if holders:
            return _Holder(holders[0])
        offer = self._fitting(trial)
        if offer is not None:
            return offer
        here = {
            peer: statuses[peer].phase
            for peer in trial.members
            if self._board.present(peer) and (statuses[peer].round, statuses[peer].epoch) == (round, epoch)
        }
        stale = any(self._board.present(p) and not self._board.heard(p, began) for p in trial.members)
        busy = any(phase in ("sharing", "shared", "finishing") for phase in here.values())
        if stale or busy or waited < GRACE:
            return None  # they may still get it, or will notice in a moment that they cannot
        left = tuple(peer for peer, phase in here.items() if phase == "recovering")
        if not trial.recoverable(left):
            return _OVER
        if self._me == left[0]:
            self._make(trial, left)
        return self._fitting(trial)

    def _fitting(self, trial: Trial) -> tuple[int, tuple[int, ...]] | None:
        offer = self._offer
        if offer is None or offer[:2] != (trial.place.round, trial.epoch):
            return None
        attempt, left = offer[2:]
        if attempt <= self._board.mine.attempt or self._me not in left or not set(left) <= set(trial.members):
            return None
        present = all(map(self._board.present, left))
        return (attempt, left) if present and trial.recoverable(left) else None

    def _make(self, trial: Trial, left: tuple[int, ...]) -> None:
        """Offer to finish with those left."""
        round, attempt = trial.place.round, self._gathering.next_attempt(trial.place.round)
        offer = {
            "kind": "recover",
            "round": round,
            "epoch": trial.epoch,
            "attempt": attempt,
            "left": list(left),
        }
        if self._gathering.tell(left, offer):
            self._offer = (round, trial.epoch, attempt, left)

    def _copy(self, trial: Trial, holder: int) -> Array:
        """Take the result from a peer that holds it; it is not confirmed yet."""
        round, epoch = trial.place.round, trial.epoch
        log.info("round %d: taking the result from %s", round, self._endpoint.roster[holder].name)
        stream = self._endpoint.fetch(
            holder, {"kind": "model", "round": round, "epoch": epoch}, self._rules.deadlines.average
        )
        return self._results.copy(stream, round, epoch, self._board.status(holder).digest)
