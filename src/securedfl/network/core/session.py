"""A session: this peer's part in the averages of a run, with whoever is there (DESIGN 3.8).

One average goes through these phases, each visible on the board:

1. ``ready``: wait for the others. The first peer that is ready offers an *attempt*: a number and its members.
2. ``sharing``, ``shared``: run the protocol up to its commit step. Nothing sent so far is a sum.
3. The roster decides by consensus: this attempt, with these members. Only then
4. ``finishing``, ``have``: reduce. Whoever holds the result keeps it safe and waits.
5. The roster decides by consensus: done (with the result's digest), or abandoned. Only then is the result applied.

A peer that missed any of it fetches the result of a decided round from those that hold it. If members are lost after
the commit, those left try to get the same result without them (`recovery`). If that cannot be, the attempt is
abandoned: then only the same members may average these parameters again (the next *epoch* of the round), because
another sum of the same parameters would permit differencing. If they do not come together again, the round is void or
the run ends, on all peers alike.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.errors import ConfigError, InvalidInputError, PeerLostError, SecuredFLError
from securedfl.network.core.board import Board
from securedfl.network.core.consensus import Acceptor
from securedfl.network.core.decisions import KINDS, Decisions, commit_key, outcome_key, read_key
from securedfl.network.core.joining import Progress, await_everybody
from securedfl.network.core.members import IN_ATTEMPT, Gathering
from securedfl.network.core.recovery import Recovery
from securedfl.network.core.results import Results
from securedfl.network.core.rules import Averaged, Rules, RunEndedError, Tried
from securedfl.network.core.settlement import CUT_OFF, BehindError, Settlement
from securedfl.network.core.trial import Trial
from securedfl.network.wire.control import number, text
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.frames import FrameError, Place
from securedfl.network.wire.mailbox import Mailbox
from securedfl.protocols.steps import Array, Draw

log = logging.getLogger("securedfl.session")


class _MovedError(Exception):
    """The roster decided about this average without this peer's attempt."""


class _VoidError(Exception):
    """The roster decided that this round gives no average."""


class Session:
    """Joins a run and averages, round by round.

    Parameters
    ----------
    endpoint
        The network; its ``answer`` and ``models`` are taken over.
    run
        16 bytes that name the run; messages of others are dropped.
    rules
        What was agreed on.
    identity
        Hashes by name (configuration, design, model) that must be the same on all peers.
    state
        Folder of the journal and of results that are not confirmed yet; None keeps all in memory (tests).
    durable
        Whether results go to disk before they are confirmed.
    draws
        Gives the draw for a round and the chunk that starts at an offset; by default cryptographic masks.
    heartbeat, silence
        See `Board`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        run: bytes,
        rules: Rules,
        *,
        identity: dict[str, str],
        state: Path | None = None,
        durable: bool = True,
        draws: Callable[[int, int], Draw] | None = None,
        heartbeat: float = 1.0,
        silence: float = 10.0,
    ) -> None:
        self.endpoint, self.rules, self.me = endpoint, rules, endpoint.me
        self.n = len(endpoint.roster)
        if not self.n // 2 < rules.least <= self.n:
            raise ConfigError(f"min_peers must be more than half of the {self.n} peers, not {rules.least}")
        self._run, self._draws, self.identity = run, draws, identity
        if state is not None:
            state.mkdir(parents=True, exist_ok=True)
        self.results = Results(state if durable else None, rules.result_size or rules.size, rules.dtype)
        self.acceptor = Acceptor(state / "journal.jsonl" if state else None, self._approve)
        self._trial: Trial | None = None
        self._begun: list[tuple[int, int, tuple[int, ...]]] = []
        self.board = Board(endpoint, heartbeat=heartbeat, silence=silence, watch=self._watch)
        self.decisions = Decisions(endpoint, self.board, self.acceptor)
        self._gathering = Gathering(endpoint, self.board, rules, self.decisions)
        self._recovery = Recovery(endpoint, self.board, rules, self.decisions, self._gathering, self.results)
        self._settlement = Settlement(
            endpoint,
            self.board,
            rules,
            self.decisions,
            self._gathering,
            self.results,
            leave=self.leave,
        )
        self._settlement.confirm_pending()
        endpoint.answer, endpoint.models = self._answer, self._give
        self.board.say(identity=json.dumps(identity, sort_keys=True), finished=self.results.round)
        self.board.start()

    # -- joining ----------------------------------------------------------------------------------------------

    def join(self, progress: Progress | None = None) -> None:
        """Wait until all peers are there, or enough of them if the run has already begun; compare identities.

        Parameters
        ----------
        progress
            Told the names of those still missing, whenever they change.
        """
        try:
            await_everybody(self.endpoint, self.board, self.rules, self.identity, progress)
        except ConfigError:
            self.leave(f"{self._name(self.me)} has other settings than its peers")
            raise

    def catch_up(self) -> Averaged | None:
        """Return the latest result that others hold, if it is later than this peer's own."""
        latest = max(self.board.status(peer).finished for peer in range(self.n))
        return self._settlement.fetch(latest, "") if latest > self.results.round else None

    # -- averaging --------------------------------------------------------------------------------------------

    def average(self, vector: Array, round: int) -> Averaged:
        """Average with the others; return what all of them hold, or raise what all of them raise."""
        began, waited, epoch = time.monotonic(), 0.0, 0
        self._check_own(vector)
        self._begun.clear()
        try:
            while True:
                result: Array | None = None
                start = time.monotonic()
                try:
                    try:
                        # one that was in an attempt with this peer should know at once that it is given up
                        to = None if self._begun else self.board.first(range(self.n))
                        self.board.say(to=to, phase="ready", round=round, epoch=epoch, digest="")
                        attempt, members = self._await_offer(round, epoch)
                        waited += time.monotonic() - start
                        result = self._attempt(vector, round, epoch, attempt, members)
                    except _MovedError:
                        pass  # the decision tells what to do
                    except RunEndedError:
                        raise
                    except PeerLostError as error:
                        log.warning("round %d: an attempt is given up: %s", round, error)
                    if result is None:
                        self._obey(round, epoch)
                        result = self._recover(round, epoch)
                    done = self._settlement.settle(round, epoch, result)
                except BehindError:
                    done = self._settlement.fetch(round, "")
                    void = (self.decisions.commit(round, epoch) or {}).get("kind") == "void"
                    done = replace(done, void=void and done.round == round)
                except _VoidError:
                    done = Averaged(round, self.results.void(round), void=True)
                    self.board.say(phase="done", finished=round)
                if done is not None:
                    return replace(
                        done,
                        attempts=epoch + 1,
                        tried=self._tried(round, epoch),
                        seconds=time.monotonic() - began,
                        waited=waited,
                    )
                if self.decisions.outcome(round, epoch) is not None:
                    epoch += 1
        finally:
            self._trial = None

    def _tried(self, round: int, epoch: int) -> tuple[Tried, ...]:
        """Return the attempts of a round: those of this peer, and those that the roster committed to."""
        found = {(at, number): Tried(at, number, who, False) for at, number, who in self._begun}
        for at in range(epoch + 1):
            decision = self.decisions.commit(round, at) or {}
            if decision.get("kind") == "members":
                number = int(decision["attempt"])
                found[at, number] = Tried(at, number, tuple(decision["members"]), True)
        return tuple(sorted(found.values()))

    def _check_own(self, vector: Array) -> None:
        """Leave, and say why, rather than send what cannot be averaged."""
        if vector.dtype.kind == "f" and not np.isfinite(vector).all():
            index = int(np.flatnonzero(~np.isfinite(vector))[0])
            self.leave(f"the parameters of {self._name(self.me)} are not finite")
            raise InvalidInputError(
                f"the parameters of {self._name(self.me)} are not finite (first at index {index}); "
                "only finite numbers can be averaged"
            )

    def _await_offer(self, round: int, epoch: int) -> tuple[int, tuple[int, ...]]:
        """Wait for an attempt that this peer is in; offer one when it is this peer's turn."""
        since = time.monotonic()

        def look() -> tuple[int, tuple[int, ...]] | None:
            self._check_decision(round, epoch)
            found = self._gathering.look(round, epoch, time.monotonic() - since)
            end, self._gathering.end = self._gathering.end, None
            if end is not None:
                self.decisions.propose(commit_key(round, epoch), end)
            return found

        in_touch = since
        while True:
            found = self.board.wait(look, 1.0)
            if found:
                return found[0], found[1]
            now = time.monotonic()
            if 2 * sum(map(self.board.present, range(self.n))) > self.n:
                in_touch = now
            elif now - in_touch > self.rules.deadlines.absent:
                raise RunEndedError(CUT_OFF)

    def _attempt(self, vector: Array, round: int, epoch: int, attempt: int, members: tuple[int, ...]) -> Array:
        """Take part in one attempt; return the result, or raise `PeerLostError` or `_MovedError`."""
        draws = self._draws
        self._begun.append((epoch, attempt, members))
        self._trial = trial = Trial(
            self.endpoint,
            self.board,
            self.rules,
            place=Place(self._run, round, attempt, 0, 0),
            epoch=epoch,
            members=members,
            vector=vector,
            draws=None if draws is None else lambda offset: draws(round, offset),
        )
        with self._leaving():
            return trial.run(self._await_commit)

    def _recover(self, round: int, epoch: int) -> Array | None:
        """Get the result of an attempt of this peer that was committed to and broke off, if that is possible."""
        trial = self._trial
        if trial is None or not trial.shared or self.decisions.commit(round, epoch) != trial.value:
            return None
        with self._leaving():
            return self._recovery.run(trial)

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Tell the others when this peer cannot go on for a reason of its own."""
        try:
            yield
        except PeerLostError:
            raise
        except SecuredFLError as error:
            self.leave(f"{self._name(self.me)} stopped: {type(error).__name__}")
            raise

    def _await_commit(self, trial: Trial, mailbox: Mailbox) -> None:
        """Wait until the roster has decided for this attempt; propose it when all members have shared."""
        round, epoch, attempt = trial.place.round, trial.epoch, trial.place.attempt
        began = time.monotonic()

        def look() -> Any:
            decision = self.decisions.commit(round, epoch)
            if decision is not None:
                return decision
            mailbox.check()
            shared = all(
                (s.round, s.epoch, s.attempt) == (round, epoch, attempt)
                and s.phase in ("shared", "finishing", "recovering", "have")
                for s in map(self.board.status, trial.members)
            )
            turn = time.monotonic() - began > 0.5 * trial.members.index(self.me)
            return self.decisions.propose(commit_key(round, epoch), trial.value) if shared and turn else None

        decision = self.board.wait(look, self.rules.deadlines.average)
        if decision is None:
            raise PeerLostError("not all members shared in time")
        if decision != trial.value:
            raise _MovedError

    # -- decisions --------------------------------------------------------------------------------------------

    def _check_decision(self, round: int, epoch: int) -> None:
        """React to a decision about this average that was taken while this peer waited to begin."""
        if self.decisions.commit(round, epoch) is not None:
            raise _MovedError
        keys = [commit_key(round, epoch), outcome_key(round, epoch)]
        self._settlement.check_behind(round, keys)
        later = [
            peer
            for peer in self._others()
            if (s := self.board.status(peer)).round == round
            and (s.epoch > epoch or s.phase in ("finishing", "recovering", "have"))
        ]
        if later and self.decisions.commit(round, epoch) is None:
            self.decisions.learn(keys, later)
        if self.decisions.commit(round, epoch) is not None:
            raise _MovedError

    def _obey(self, round: int, epoch: int) -> None:
        """End the round or the run if the roster decided so instead of on members."""
        decision = self.decisions.commit(round, epoch) or {}
        if decision.get("kind") == "fail":
            raise RunEndedError(f"the run ends in round {round} on all peers: {decision['reason']}")
        if decision.get("kind") == "void":
            raise _VoidError

    def _approve(self, key: str, value: Any) -> bool:
        """Tell whether this peer accepts a value (see `Acceptor`)."""
        what, round, epoch = read_key(key)
        mine = self.board.mine
        if not isinstance(value, dict) or value.get("kind") not in KINDS[what]:
            return False
        if what == "outcome" and value["kind"] == "done":
            return self.results.holds(round, value["digest"])
        if what == "commit" and (mine.round, mine.epoch) == (round, epoch):
            if value["kind"] == "members":
                return bool(mine.attempt <= value["attempt"])
            return mine.phase not in IN_ATTEMPT  # no end while an attempt may still succeed
        return True

    # -- the others -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Let the running attempt end as soon as it cannot succeed; called with every heartbeat."""
        trial = self._trial
        if trial is not None:
            trial.watch()

    def _give(self, _peer: int, message: dict[str, Any]) -> Iterator[bytes]:
        """Give a result to a peer that lacks it."""
        if "round" not in message:
            return self.results.send()
        return self.results.send(number(message, "round"), number(message, "epoch"))

    def _answer(self, peer: int, message: dict[str, Any]) -> dict[str, Any]:
        kind = text(message, "kind")
        if kind == "beat":
            return self.board.hear(peer, message)
        if kind == "hello":
            return self.board.told()
        if kind == "offer":
            reply = self._gathering.take(message)
        elif kind == "recover":
            reply = self._recovery.take(message)
        elif kind in ("prepare", "accept", "decide"):
            reply = self.acceptor.answer(message)
        elif kind == "query":
            reply = {"decided": self.acceptor.known(text(message, "key"))}
        else:
            raise FrameError("a control message of an unknown kind")
        self.board.poke()
        return reply

    def leave(self, reason: str) -> None:
        """Tell the others that this peer leaves, and why; the text must not hold anything private."""
        self.board.say(phase="left", reason=reason)
        for peer in self._others():
            if self.board.entry(peer).answers:
                try:
                    self.endpoint.call(peer, self.board.told(), timeout=1.0)
                except SecuredFLError:
                    continue

    def close(self) -> None:
        """Hang up."""
        self.board.close()
        self.endpoint.close()
        self.acceptor.close()

    def _others(self) -> Iterator[int]:
        return (peer for peer in range(self.n) if peer != self.me)

    def _name(self, peer: int) -> str:
        return self.endpoint.roster[peer].name
