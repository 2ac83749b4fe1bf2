"""Consensus among the peers of the roster: single-decree Paxos, one instance per question.

No site decides alone: a value is decided once more than half of the roster has accepted it, and from then on nobody can
decide another, however late messages are and whoever crashes. What a peer promised and accepted is on disk before it
answers, so that it cannot forget it when it is killed.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from securedfl.errors import RunFolderError
from securedfl.network.wire.control import number, text
from securedfl.network.wire.frames import FrameError
from securedfl.storage import Lines, read_lines

Approve = Callable[[str, Any], bool]
AskOthers = Callable[[dict[str, Any]], list[dict[str, Any]]]


@dataclass(frozen=True)
class Vote:
    """What one peer has promised and accepted in one instance."""

    promised: int = -1
    ballot: int = -1
    value: str = ""
    decided: str = ""


class Acceptor:
    """Answers proposers, and keeps every answer in a journal on disk.

    Parameters
    ----------
    journal
        The file; None keeps everything in memory, for tests.
    approve
        Tells whether a value may be accepted. Refusing costs time, never agreement.
    """

    def __init__(self, journal: Path | None, approve: Approve | None = None) -> None:
        self.approve = approve or (lambda _key, _value: True)
        self._lock = threading.RLock()
        self._votes: dict[str, Vote] = {}
        self._journal: Lines | None = None
        if journal is not None:
            self._load(journal)
            self._journal = Lines(journal)

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a proposer (``prepare``, ``accept``), or take note of a decision (``decide``)."""
        key, kind = text(message, "key"), text(message, "kind")
        with self._lock:
            vote = self._votes.get(key, Vote())
            if kind == "decide":
                self._learn(key, vote, text(message, "value"))
            elif not vote.decided:
                ballot = number(message, "ballot")
                if kind == "prepare" and ballot > vote.promised:
                    self._keep(key, Vote(ballot, vote.ballot, vote.value))
                    return {"ok": True, "ballot": vote.ballot, "value": vote.value}
                if kind == "accept" and ballot >= vote.promised:
                    value = text(message, "value")
                    # what may already have been decided cannot be refused, or nobody could ever learn it
                    bound = message.get("bound") is True or value == vote.value
                    if not bound and not self.approve(key, _read(value)):
                        return {"ok": False, "promised": vote.promised, "refused": True}
                    self._keep(key, Vote(ballot, ballot, value))
                    return {"ok": True}
            vote = self._votes.get(key, Vote())
            return {"ok": kind == "decide", "promised": vote.promised, "decided": vote.decided}

    def untouched(self, key: str) -> bool:
        """Tell whether this peer has neither promised nor accepted anything about a question, ever."""
        with self._lock:
            return key not in self._votes

    def known(self, key: str) -> str:
        """Return what was decided as it travels, or an empty string."""
        with self._lock:
            return self._votes.get(key, Vote()).decided

    def decided(self, key: str) -> Any:
        """Return what was decided, or None."""
        value = self.known(key)
        return json.loads(value) if value else None

    def learn(self, key: str, value: str) -> None:
        """Take note of a decision."""
        with self._lock:
            self._learn(key, self._votes.get(key, Vote()), value)

    def _learn(self, key: str, vote: Vote, value: str) -> None:
        if not vote.decided and value:
            self._keep(key, Vote(vote.promised, vote.ballot, vote.value, value))

    def _keep(self, key: str, vote: Vote) -> None:
        if self._journal is not None:
            self._journal.append(json.dumps({"key": key, **asdict(vote)}))
        self._votes[key] = vote

    def _load(self, path: Path) -> None:
        # a last line that was cut short by a kill was never answered
        for at, line in enumerate(read_lines(path), start=1):
            try:
                entry = json.loads(line)
                key = entry.pop("key")
                self._votes[key] = Vote(**entry)
            except (ValueError, TypeError, KeyError):
                raise RunFolderError(f"line {at} of the journal {path} is damaged") from None

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()


def propose(
    key: str,
    value: Any,
    *,
    me: int,
    n: int,
    acceptor: Acceptor,
    ask_others: AskOthers,
    deadline: float,
) -> Any:
    """Try to have a value decided; return what was decided (perhaps another's value), or None by the deadline.

    Parameters
    ----------
    key, value
        The instance, and what to propose if nothing has been accepted yet.
    me, n
        This peer, and the size of the roster, itself included.
    acceptor, ask_others
        This peer's own vote; and how to ask all others the same, which returns the answers that came.
    deadline
        On the monotonic clock.
    """

    def ask(**message: Any) -> list[dict[str, Any]]:
        message["key"] = key
        own = acceptor.answer(message)
        return [own] if message["ballot"] == 0 and not own.get("ok") else [own, *ask_others(message)]

    # Ballot 0 is the lowest and peer 0's alone, so that there is nothing to ask about before it. It is used once: the
    # vote is in peer 0's own journal before anybody else hears of it.
    counter = 0 if me != 0 or acceptor.untouched(key) else 1
    while True:
        known = acceptor.decided(key)
        if known is not None:
            return known
        ballot = counter * n + me
        replies = ask(kind="prepare", ballot=ballot) if ballot else []
        mine = _decided(replies)
        granted = [reply for reply in replies if reply.get("ok")]
        if ballot == 0 or (not mine and 2 * len(granted) > n):
            best = max(granted, key=lambda reply: int(reply.get("ballot", -1)), default={})
            found = str(best.get("value") or "")
            chosen = found or json.dumps(value, sort_keys=True)
            accepts = ask(kind="accept", ballot=ballot, value=chosen, bound=bool(found))
            mine = _decided(accepts)
            if 2 * sum(bool(reply.get("ok")) for reply in accepts) > n:
                mine = chosen
            replies += accepts
        if mine:
            acceptor.learn(key, mine)
            ask_others({"kind": "decide", "key": key, "value": mine})
            return json.loads(mine)
        if time.monotonic() >= deadline:
            return None
        highest = max((int(reply.get("promised", -1)) for reply in replies), default=-1)
        counter = max(counter, highest // n) + 1
        time.sleep(random.uniform(0.02, 0.1) * (1 + me))  # so that two proposers do not duel for ever


def _read(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        raise FrameError("a vote for an unreadable value") from None


def _decided(replies: Sequence[dict[str, Any]]) -> str:
    return next((str(reply["decided"]) for reply in replies if reply.get("decided")), "")
