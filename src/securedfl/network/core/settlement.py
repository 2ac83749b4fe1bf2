"""Settling an average: a result counts once the roster has decided so; whoever lacks it then fetches it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from securedfl.errors import PeerLostError, SecuredFLError
from securedfl.network.core.board import Board
from securedfl.network.core.decisions import Decisions, outcome_key
from securedfl.network.core.members import GRACE, Gathering
from securedfl.network.core.results import Results
from securedfl.network.core.rules import Averaged, Rules, RunEndedError
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.frames import FrameError
from securedfl.protocols.steps import Array

log = logging.getLogger("securedfl.session")

CUT_OFF = (
    "this peer cannot reach more than half of the federation, so nothing can be decided; start it again when the "
    "others are back"
)


class BehindError(Exception):
    """Others already hold the result of this round."""


class Settlement:
    """Brings what an attempt gave to its end, on all peers alike.

    Parameters
    ----------
    endpoint, board, rules, decisions, gathering, results
        Of the session.
    leave
        Tells the others why this peer leaves.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        board: Board,
        rules: Rules,
        decisions: Decisions,
        gathering: Gathering,
        results: Results,
        *,
        leave: Callable[[str], None],
    ) -> None:
        self._endpoint, self._board, self._rules = endpoint, board, rules
        self._decisions, self._gathering, self._results, self._leave = decisions, gathering, results, leave
        self._me, self._n = endpoint.me, len(endpoint.roster)

    def settle(self, round: int, epoch: int, result: Array | None) -> Averaged | None:
        """Confirm a result with the others; return it once all are bound to it, None if it must be tried again."""
        if result is None and self._decisions.commit(round, epoch) is None:
            return None  # before the commit: nothing to settle
        digest = ""
        if result is not None:
            try:
                before = self._results.load() if self._results.round >= 0 else None
                digest = self._results.stage(round, epoch, self._rules.model(result, round, before))
            except SecuredFLError:
                self._leave(f"{self._name(self._me)} cannot keep results")
                raise
            first = self._board.first(self._decisions.members(round, epoch))
            self._board.say(to=first, phase="have", digest=digest)
        else:
            given_up = max(self._board.mine.attempt, self._decisions.attempt(round, epoch))
            self._board.say(phase="ready", attempt=given_up)
        decision = self._await_outcome(round, epoch, digest)
        if decision["kind"] == "abandoned":
            self._results.discard()
            why = self._rules.may_retry(round, epoch + 1)
            if epoch >= self._rules.retries or why:
                raise RunEndedError(
                    f"the run ends in round {round} on all peers: its average was abandoned {epoch + 1} times; "
                    + (why or "no more retries are allowed")
                )
            return None
        if not self._results.holds(round, decision["digest"]):
            return self.fetch(round, decision["digest"])
        vector = self._results.confirm()
        self._board.say(to=(), phase="done", finished=round)
        return Averaged(round, vector, self._decisions.members(round, epoch))

    def _await_outcome(self, round: int, epoch: int, digest: str) -> Any:
        """Wait for the roster's decision about the result; propose it when it is this peer's turn."""
        key, began, patience = outcome_key(round, epoch), time.monotonic(), self._rules.deadlines.average

        def look() -> Any:
            self.check_behind(round, [key], patient=bool(digest))
            decision = self._decisions.outcome(round, epoch)
            if decision is not None:
                return decision
            have = self._gathering.holders(round, epoch)
            waited = time.monotonic() - began
            waiting = self._gathering.unfinished(round, epoch, began)
            if digest and 2 * len(have) > self._n:
                if (not waiting or waited > 2.0) and waited > 0.5 * have.index(self._me):
                    return self._decisions.propose(key, {"kind": "done", "digest": digest})
            elif (not waiting and waited > GRACE) or waited > patience:
                return self._decisions.propose(key, {"kind": "abandoned"})
            return None

        decision = self._board.wait(look, 3 * patience)
        if decision is None:
            raise RunEndedError(CUT_OFF)
        return decision

    def check_behind(self, round: int, keys: list[str], *, patient: bool = False) -> None:
        """Raise `BehindError` if others hold this round's result; learn what they know first."""
        ahead = [peer for peer in self._others() if self._board.status(peer).finished >= round]
        if not ahead:
            return
        self._decisions.learn(keys, ahead)
        if patient and all(map(self._decisions.known, keys)):
            return
        raise BehindError

    def confirm_pending(self) -> None:
        """After a restart: confirm a result that was decided before this peer was killed."""
        pending = self._results.pending
        if pending is None:
            return
        decision = self._decisions.outcome(pending.round, pending.epoch) or {}
        if decision.get("digest") == pending.digest:
            self._results.confirm()

    def fetch(self, round: int, digest: str) -> Averaged:
        """Get the result of a round, or of a later one, from those that hold it."""
        deadline = time.monotonic() + self._rules.deadlines.average
        while time.monotonic() < deadline:
            for peer in self._others():
                if not self._board.present(peer) or self._board.status(peer).finished < round:
                    continue
                stream = self._endpoint.fetch(peer, {"kind": "model"}, self._rules.deadlines.average)
                try:
                    at, vector = self._results.receive(stream, round, digest)
                except (PeerLostError, FrameError) as error:
                    log.warning("cannot fetch the model from %s: %s", self._name(peer), error)
                    continue
                self._board.say(phase="done", finished=at)
                return Averaged(at, vector, fetched=True)
            self._board.wait(lambda: False, 0.2)
        raise PeerLostError(f"nobody could provide the result of round {round}; start this peer again")

    def _others(self) -> Iterator[int]:
        return (peer for peer in range(self._n) if peer != self._me)

    def _name(self, peer: int) -> str:
        return self._endpoint.roster[peer].name
