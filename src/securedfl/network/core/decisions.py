"""What the roster has decided about averages: who takes part (*commit*), and whether the result counts (*outcome*)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from securedfl.errors import SecuredFLError
from securedfl.network.core.board import Board
from securedfl.network.core.consensus import Acceptor, propose
from securedfl.network.wire.control import text
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.frames import FrameError

KINDS = {"commit": ("members", "void", "fail"), "outcome": ("done", "abandoned")}
"""What can be decided about each question."""


def commit_key(round: int, epoch: int) -> str:
    """Name the question who takes part."""
    return f"commit/{round}/{epoch}"


def outcome_key(round: int, epoch: int) -> str:
    """Name the question whether the result counts."""
    return f"outcome/{round}/{epoch}"


def read_key(key: str) -> tuple[str, int, int]:
    """Return what a question is about, its round and its epoch; anything else is a `FrameError`."""
    what, *numbers = key.split("/")
    if what not in KINDS or len(numbers) != 2 or not all(map(str.isdecimal, numbers)):
        raise FrameError("a vote about an unknown question")
    return what, int(numbers[0]), int(numbers[1])


class Decisions:
    """Proposes values to the roster, and learns what others had decided.

    Parameters
    ----------
    endpoint, board, acceptor
        Of the session.
    """

    def __init__(self, endpoint: Endpoint, board: Board, acceptor: Acceptor) -> None:
        self._endpoint, self._board, self._acceptor = endpoint, board, acceptor
        self._n = len(endpoint.roster)

    def commit(self, round: int, epoch: int) -> Any:
        """Return what was decided about the members, None if this peer does not know."""
        return self._acceptor.decided(commit_key(round, epoch))

    def outcome(self, round: int, epoch: int) -> Any:
        """Return what was decided about the result, None if this peer does not know."""
        return self._acceptor.decided(outcome_key(round, epoch))

    def known(self, key: str) -> bool:
        """Tell whether this peer knows the answer to a question."""
        return bool(self._acceptor.known(key))

    def members(self, round: int, epoch: int) -> tuple[int, ...]:
        """Return the members that were decided on; everybody if this peer does not know."""
        return tuple((self.commit(round, epoch) or {}).get("members", range(self._n)))

    def attempt(self, round: int, epoch: int) -> int:
        """Return the number of the attempt that was decided on, -1 if this peer does not know."""
        return int((self.commit(round, epoch) or {}).get("attempt", -1))

    def bound(self, round: int, epoch: int) -> tuple[int, ...]:
        """Return the members that an earlier, abandoned epoch of this round was committed to; empty if none was."""
        for before in range(epoch):
            decision = self.commit(round, before) or {}
            if decision.get("kind") == "members":
                return tuple(decision["members"])
        return ()

    def propose(self, key: str, value: Any) -> Any:
        """Try to have a value decided; return what was decided, None if nothing was yet."""
        return propose(
            key,
            value,
            me=self._endpoint.me,
            n=self._n,
            acceptor=self._acceptor,
            ask_others=self._ask_others,
            deadline=time.monotonic() + 2.0,
        )

    def learn(self, keys: Iterable[str], peers: Sequence[int]) -> None:
        """Ask peers for decisions that this one missed."""
        for key in keys:
            for peer in peers:
                if self._acceptor.known(key):
                    break
                try:
                    reply = self._endpoint.call(peer, {"kind": "query", "key": key})
                except SecuredFLError:
                    continue
                if reply.get("decided"):
                    self._acceptor.learn(key, text(reply, "decided"))

    def _ask_others(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Ask the others for their votes; one that is gone would only cost time."""
        here = [peer for peer in range(self._n) if peer != self._endpoint.me and self._board.present(peer)]
        return list(self._endpoint.call_all(here, message, timeout=3.0).values())
