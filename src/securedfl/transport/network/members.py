"""Gathering members for an average: who is ready, who offers an attempt, and when to stop waiting."""

from __future__ import annotations

import logging
from typing import Any

from securedfl.errors import SecuredFLError
from securedfl.transport.network.board import Board
from securedfl.transport.network.consensus import Acceptor
from securedfl.transport.network.control import number
from securedfl.transport.network.endpoint import Endpoint
from securedfl.transport.network.frames import FrameError
from securedfl.transport.network.rules import Rules

log = logging.getLogger("securedfl.session")

GRACE = 1.0
"""Seconds before anybody acts on a peer that seems to be gone: heartbeats may be late."""


def commit_key(round: int, epoch: int) -> str:
    """Name the question who takes part."""
    return f"commit/{round}/{epoch}"


def outcome_key(round: int, epoch: int) -> str:
    """Name the question whether the result counts."""
    return f"outcome/{round}/{epoch}"


class Gathering:
    """Brings members together for attempts. An offer is a suggestion: only consensus binds anybody.

    Parameters
    ----------
    endpoint, board, rules, acceptor
        Of the session.
    """

    def __init__(self, endpoint: Endpoint, board: Board, rules: Rules, acceptor: Acceptor) -> None:
        self._endpoint, self._board, self._rules, self._acceptor = endpoint, board, rules, acceptor
        self._me, self._n = endpoint.me, len(endpoint.roster)
        self._offer: tuple[int, int, int, tuple[int, ...]] | None = None
        self._tried = (-1, -1)  # round and attempt that this peer began last
        self.end: dict[str, Any] | None = None

    def look(self, round: int, epoch: int, waited: float) -> tuple[int, tuple[int, ...]] | None:
        """Return an attempt to begin, or None; offers one if this peer is the first of those that are ready."""
        found = self._offered(round, epoch)
        if found is None:
            members = self._who(round, epoch, waited)
            if members and self._me == min(members):
                self._make(round, epoch, members)
                found = self._offered(round, epoch)
        if found is not None:
            self._tried = (round, found[0])
        return found

    def take(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take another peer's offer; one that breaks the rules is a `FrameError` or ignored."""
        members = message.get("members")
        if not isinstance(members, list) or not all(type(member) is int for member in members):
            raise FrameError("an offer without members")
        if members != sorted(set(members) & set(range(self._n))):
            raise FrameError("an offer with impossible members")
        least = self._rules.least if self._rules.can_lose else self._n
        at = (number(message, "round"), number(message, "epoch"), number(message, "attempt"))
        if len(members) >= least and (self._offer is None or at > self._offer[:3]):
            self._offer = (*at, tuple(members))
        return {"kind": "ok"}

    def members(self, round: int, epoch: int) -> tuple[int, ...]:
        """Return the members that were decided on; everybody if this peer does not know."""
        decision = self._acceptor.decided(commit_key(round, epoch)) or {}
        return tuple(decision.get("members", range(self._n)))

    def bound(self, round: int, epoch: int) -> tuple[int, ...]:
        """Return the members that an earlier, abandoned epoch of this round was committed to; empty if none was."""
        for before in range(epoch):
            decision = self._acceptor.decided(commit_key(round, before)) or {}
            if decision.get("kind") == "members":
                return tuple(decision["members"])
        return ()

    def holders(self, round: int, epoch: int) -> list[int]:
        """Return the peers that hold the result and wait for confirmation."""
        statuses = ((peer, self._board.status(peer)) for peer in range(self._n))
        return [p for p, s in statuses if (s.round, s.epoch, s.phase) == (round, epoch, "have")]

    def unfinished(self, round: int, epoch: int) -> list[int]:
        """Return the members that may still get the result by themselves: those that have not given the attempt up.

        A peer shows that by being ``ready`` again with the attempt's number. What the board says may be older than the
        decision, so a member that seems not to have begun counts too.
        """
        attempt = self.attempt(round, epoch)
        found = []
        for peer in self.members(round, epoch):
            status = self._board.status(peer)
            here = (status.round, status.epoch) == (round, epoch) and self._board.present(peer)
            waiting = status.phase == "ready" and status.attempt < attempt
            if here and (waiting or status.phase in ("sharing", "shared", "finishing")):
                found.append(peer)
        return found

    def attempt(self, round: int, epoch: int) -> int:
        """Return the number of the attempt that was decided on, -1 if this peer does not know."""
        decision = self._acceptor.decided(commit_key(round, epoch)) or {}
        return int(decision.get("attempt", -1))

    def _offered(self, round: int, epoch: int) -> tuple[int, tuple[int, ...]] | None:
        offer = self._offer
        if offer is None or offer[:2] != (round, epoch) or self._me not in offer[3]:
            return None
        if (round, offer[2]) <= self._tried or not all(map(self._board.present, offer[3])):
            return None
        bound = self.bound(round, epoch)
        return None if bound and bound != offer[3] else (offer[2], offer[3])

    def _who(self, round: int, epoch: int, waited: float) -> tuple[int, ...]:
        """Return the members for the next attempt if it is time for one, else nobody."""
        board, deadlines, everyone = self._board, self._rules.deadlines, tuple(range(self._n))
        ready = tuple(
            peer
            for peer in everyone
            if board.present(peer)
            and ((s := board.status(peer)).round, s.epoch, s.phase) == (round, epoch, "ready")
        )
        bound = self.bound(round, epoch)
        wanted = bound or everyone
        if set(wanted) <= set(ready):
            return wanted
        absent = [peer for peer in wanted if not board.present(peer)]
        late = [peer for peer in wanted if peer not in ready and peer not in absent]
        enough = self._rules.can_lose and not bound and len(ready) >= self._rules.least
        if enough and ((waited > GRACE and not late) or waited > deadlines.train):
            return ready
        given_up = [peer for peer in absent if board.status(peer).reason]
        over = (
            (absent and waited > deadlines.absent)
            or (late and waited > deadlines.train)
            or (given_up and not self._rules.can_lose)
        )
        if over and ready and self._me == min(ready):
            self.end = self._ending(round, epoch, given_up or [*absent, *late])
        return ()

    def _ending(self, round: int, epoch: int, missing: list[int]) -> dict[str, Any]:
        """Return what to propose when waiting is over: a void round if the federation may go on, else the end."""
        names = ", ".join(self._endpoint.roster[peer].name for peer in missing)
        reasons = sorted({self._board.status(peer).reason for peer in missing} - {""})
        reason = "; ".join(reasons) or f"{names} did not come back in time"
        void = self._rules.can_lose and epoch > 0 and round > 0
        return {"kind": "void" if void else "fail", "reason": reason}

    def _make(self, round: int, epoch: int, members: tuple[int, ...]) -> None:
        """Offer an attempt to its members. Numbers only grow within a round, and no two peers use the same."""
        used = [
            self._board.status(peer).attempt for peer in members if self._board.status(peer).round == round
        ]
        if self._offer is not None and self._offer[0] == round:
            used.append(self._offer[2])
        attempt = (max([-1, *used]) // self._n + 1) * self._n + self._me
        offer = {
            "kind": "offer",
            "round": round,
            "epoch": epoch,
            "attempt": attempt,
            "members": list(members),
        }
        for peer in members:
            if peer != self._me:
                try:
                    self._endpoint.call(peer, offer, timeout=5.0)
                except SecuredFLError as error:
                    log.warning("cannot offer an attempt to %s: %s", self._endpoint.roster[peer].name, error)
                    return
        self._offer = (round, epoch, attempt, members)
