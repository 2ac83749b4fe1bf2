"""Gathering members for an average: who is ready, who offers an attempt, and when to stop waiting."""

from __future__ import annotations

import logging
from typing import Any

from securedfl.network.core.board import Board
from securedfl.network.core.decisions import Decisions
from securedfl.network.core.rules import History, Rules
from securedfl.network.wire.control import number, peers_of
from securedfl.network.wire.endpoint import Endpoint

log = logging.getLogger("securedfl.session")

GRACE = 1.0
"""Seconds before anybody acts on a peer that seems to be gone: heartbeats may be late."""


IN_ATTEMPT = ("sharing", "shared", "finishing", "recovering", "have")
"""The phases of a peer that takes part in an attempt."""


class Gathering:
    """Brings members together for attempts. An offer is a suggestion: only consensus binds anybody.

    Parameters
    ----------
    endpoint, board, rules, decisions
        Of the session.
    """

    def __init__(self, endpoint: Endpoint, board: Board, rules: Rules, decisions: Decisions) -> None:
        self._endpoint, self._board, self._rules, self._decisions = endpoint, board, rules, decisions
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
        members = peers_of(message, "members", self._n)
        least = self._rules.least if self._rules.can_lose else self._n
        at = (number(message, "round"), number(message, "epoch"), number(message, "attempt"))
        fits = len(members) >= least and self._rules.allows(members, self._history(*at[:2]))
        if fits and (self._offer is None or at > self._offer[:3]):
            self._offer = (*at, members)
        return {"kind": "ok"}

    def holders(self, round: int, epoch: int) -> list[int]:
        """Return the peers that hold the result and wait for confirmation."""
        statuses = ((peer, self._board.status(peer)) for peer in range(self._n))
        return [p for p, s in statuses if (s.round, s.epoch, s.phase) == (round, epoch, "have")]

    def unfinished(self, round: int, epoch: int, since: float) -> list[int]:
        """Return the members that may still get the result by themselves: those that have not given the attempt up.

        A peer shows that by being ``ready`` again with the attempt's number. What the board says may be older than the
        decision, so a member that seems not to have begun counts too, and so does one not heard of ``since`` then.
        """
        attempt = self._decisions.attempt(round, epoch)
        found = []
        for peer in self._decisions.members(round, epoch):
            status = self._board.status(peer)
            here = (status.round, status.epoch) == (round, epoch)
            over = here and (status.phase == "have" or (status.phase == "ready" and status.attempt >= attempt))
            busy = here and status.phase in ("ready", "sharing", "shared", "finishing", "recovering")
            if self._board.present(peer) and not over and (busy or not self._board.heard(peer, since)):
                found.append(peer)
        return found

    def next_attempt(self, round: int) -> int:
        """Return a number for an attempt: they only grow within a round, and no two peers use the same."""
        statuses = map(self._board.status, range(self._n))
        used = [status.attempt for status in statuses if status.round == round]
        if self._offer is not None and self._offer[0] == round:
            used.append(self._offer[2])
        return (max([-1, *used]) // self._n + 1) * self._n + self._me

    def _offered(self, round: int, epoch: int) -> tuple[int, tuple[int, ...]] | None:
        offer = self._offer
        if offer is None or offer[:2] != (round, epoch) or self._me not in offer[3]:
            return None
        if (round, offer[2]) <= self._tried or not all(map(self._board.present, offer[3])):
            return None
        bound = self._decisions.bound(round, epoch)
        return None if bound and bound != offer[3] else (offer[2], offer[3])

    def _who(self, round: int, epoch: int, waited: float) -> tuple[int, ...]:
        """Return the members for the next attempt if it is time for one, else nobody."""
        board, deadlines, everyone = self._board, self._rules.deadlines, tuple(range(self._n))
        ready = tuple(
            peer
            for peer in everyone
            if board.present(peer) and ((s := board.status(peer)).round, s.epoch, s.phase) == (round, epoch, "ready")
        )
        bound = self._decisions.bound(round, epoch)
        wanted = bound or everyone
        if set(wanted) <= set(ready):
            return wanted
        here = [peer for peer in wanted if board.present(peer)]
        busy = [peer for peer in here if self._in_attempt(peer, round, epoch)]
        late = [peer for peer in here if peer not in ready and peer not in busy]
        absent = [peer for peer in wanted if peer not in here]
        if self._rules.can_lose and not bound:
            chosen = self._rules.pick(ready, self._history(round, epoch))
            enough = len(chosen) >= self._rules.least
            if enough and ((waited > GRACE and not late and not busy) or waited > deadlines.train):
                return chosen
            too_few = len(here) < self._rules.least and waited > deadlines.absent
            over = too_few or (late and not enough and waited > deadlines.train)
        else:
            over = (absent and waited > deadlines.absent) or (late and waited > deadlines.train)
        given_up = [peer for peer in absent if board.status(peer).reason]
        over = over or (given_up and not self._rules.can_lose)
        # others may be in the middle of an attempt without this peer: they decide what comes of it
        if over and not busy and ready and self._me == min(ready):
            missed = absent if waited > deadlines.absent else []
            self.end = self._ending(round, epoch, given_up or [*missed, *(late if waited > deadlines.train else [])])
        return ()

    def _history(self, round: int, epoch: int) -> History:
        """Return the members of the attempts that were committed to in the last rounds, as far as this peer knows."""
        first = max(0, round - self._rules.window)
        return tuple(
            frozenset(decision["members"])
            for before in range(first, round + 1)
            for at in range(self._rules.retries + 1 if before < round else epoch)
            if (decision := self._decisions.commit(before, at) or {}).get("kind") == "members"
        )

    def _in_attempt(self, peer: int, round: int, epoch: int) -> bool:
        status = self._board.status(peer)
        return (status.round, status.epoch) == (round, epoch) and status.phase in IN_ATTEMPT

    def _ending(self, round: int, epoch: int, missing: list[int]) -> dict[str, Any]:
        """Return what to propose when waiting is over: a void round if the federation may go on, else the end."""
        names = ", ".join(self._endpoint.roster[peer].name for peer in missing)
        reasons = sorted({self._board.status(peer).reason for peer in missing} - {""})
        reason = "; ".join(reasons) or f"{names} did not come back in time"
        void = self._rules.can_lose and epoch > 0 and round > 0
        return {"kind": "void" if void else "fail", "reason": reason}

    def _make(self, round: int, epoch: int, members: tuple[int, ...]) -> None:
        """Offer an attempt to its members."""
        attempt = self.next_attempt(round)
        offer = {
            "kind": "offer",
            "round": round,
            "epoch": epoch,
            "attempt": attempt,
            "members": list(members),
        }
        if self.tell(members, offer):
            self._offer = (round, epoch, attempt, members)

    def tell(self, peers: tuple[int, ...], offer: dict[str, Any]) -> bool:
        """Make an offer to all others of these peers; return whether all of them have it."""
        others = [peer for peer in peers if peer != self._me]
        silent = set(others) - set(self._endpoint.call_all(others, offer, timeout=5.0))
        if silent:
            names = ", ".join(self._endpoint.roster[peer].name for peer in sorted(silent))
            log.warning("cannot make an offer (%s) to %s", offer["kind"], names)
        return not silent
