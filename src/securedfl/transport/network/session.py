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
from securedfl.protocols.base import Array, Draw
from securedfl.transport.network.board import Board
from securedfl.transport.network.consensus import Acceptor
from securedfl.transport.network.control import number, text
from securedfl.transport.network.decisions import Decisions, commit_key, outcome_key
from securedfl.transport.network.endpoint import Endpoint
from securedfl.transport.network.frames import FrameError, Place
from securedfl.transport.network.mailbox import Mailbox
from securedfl.transport.network.members import GRACE, Gathering
from securedfl.transport.network.recovery import Recovery
from securedfl.transport.network.results import Results
from securedfl.transport.network.rules import Averaged, Rules, RunEndedError
from securedfl.transport.network.trial import Trial

log = logging.getLogger("securedfl.session")


_CUT_OFF = (
    "this peer cannot reach more than half of the federation, so nothing can be decided; start it again when the "
    "others are back"
)


class _MovedError(Exception):
    """The roster decided about this average without this peer's attempt."""


class _BehindError(Exception):
    """Others already hold the result of this round."""


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
        self.results = Results(state if durable else None, rules.size, rules.dtype)
        self.acceptor = Acceptor(state / "journal.jsonl" if state else None, self._approve)
        self._trial: Trial | None = None
        self.board = Board(endpoint, heartbeat=heartbeat, silence=silence, watch=self._watch)
        self.decisions = Decisions(endpoint, self.board, self.acceptor)
        self._gathering = Gathering(endpoint, self.board, rules, self.decisions)
        self._recovery = Recovery(endpoint, self.board, rules, self.decisions, self._gathering, self.results)
        self._confirm_pending()
        endpoint.answer, endpoint.models = self._answer, self._give
        self.board.say(identity=json.dumps(identity, sort_keys=True), finished=self.results.round)
        self.board.start()

    # -- joining ----------------------------------------------------------------------------------------------

    def join(self, progress: Callable[[list[str]], None] | None = None) -> None:
        """Wait until all peers are there, or enough of them if the run has already begun; compare identities.

        Parameters
        ----------
        progress
            Told the names of those still missing, whenever they change.
        """
        missing: list[int] | None = None

        def everybody() -> bool:
            nonlocal missing
            self._compare()
            now = [peer for peer in self._others() if not self.board.present(peer)]
            if now != missing and progress is not None:
                progress([self._name(peer) for peer in now])
            missing = now
            begun = any(self.board.status(peer).finished >= 0 for peer in range(self.n))
            return not now or (begun and self.rules.can_lose and self.n - len(now) >= self.rules.least)

        if not self.board.wait(everybody, self.rules.deadlines.join):
            problems = "; ".join(self.board.entry(peer).problem or self._name(peer) for peer in missing or ())
            raise PeerLostError(f"not all peers came within {self.rules.deadlines.join:g} s: {problems}")

    def catch_up(self) -> Averaged | None:
        """Return the latest result that others hold, if it is later than this peer's own."""
        latest = max(self.board.status(peer).finished for peer in range(self.n))
        return self._fetch(latest, "") if latest > self.results.round else None

    def _compare(self) -> None:
        for peer in self._others():
            theirs = self.board.status(peer).identity
            if not theirs or not self.board.present(peer):
                continue
            values = _json(theirs)
            for what, mine in self.identity.items():
                if values.get(what) != mine:
                    self.leave(f"{self._name(self.me)} has another {what} than {self._name(peer)}")
                    raise ConfigError(
                        f"{self._name(peer)} has another {what}: {values.get(what)} there, {mine} here; "
                        "all peers need the same federation.toml, design and model"
                    )

    # -- averaging --------------------------------------------------------------------------------------------

    def average(self, vector: Array, round: int) -> Averaged:
        """Average with the others; return what all of them hold, or raise what all of them raise."""
        began, waited, epoch = time.monotonic(), 0.0, 0
        self._check_own(vector)
        try:
            while True:
                result: Array | None = None
                start = time.monotonic()
                try:
                    try:
                        self.board.say(phase="ready", round=round, epoch=epoch, digest="")
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
                        result = self._recover(round, epoch)
                    done = self._settle(round, epoch, result)
                except _BehindError:
                    done = self._fetch(round, "")
                except _VoidError:
                    done = Averaged(round, self.results.void(round), void=True)
                    self.board.say(phase="done", finished=round)
                if done is not None:
                    return replace(done, attempts=epoch + 1, seconds=time.monotonic() - began, waited=waited)
                if self.decisions.outcome(round, epoch) is not None:
                    epoch += 1
        finally:
            self._trial = None

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
                raise RunEndedError(_CUT_OFF)

    def _attempt(
        self, vector: Array, round: int, epoch: int, attempt: int, members: tuple[int, ...]
    ) -> Array:
        """Take part in one attempt; return the result, or raise `PeerLostError` or `_MovedError`."""
        draws = self._draws
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

    def _settle(self, round: int, epoch: int, result: Array | None) -> Averaged | None:
        """Confirm a result with the others; return it once all are bound to it, None if it must be tried again."""
        if result is None and self.decisions.commit(round, epoch) is None:
            return None  # before the commit: nothing to settle
        digest = ""
        if result is not None:
            try:
                digest = self.results.stage(round, epoch, result)
            except SecuredFLError:
                self.leave(f"{self._name(self.me)} cannot keep results")
                raise
            self.board.say(phase="have", digest=digest)
        else:
            given_up = max(self.board.mine.attempt, self.decisions.attempt(round, epoch))
            self.board.say(phase="ready", attempt=given_up)
        decision = self._await_outcome(round, epoch, digest)
        if decision["kind"] == "abandoned":
            self.results.discard()
            why = self.rules.may_retry(round, epoch + 1)
            if epoch >= self.rules.retries or why:
                raise RunEndedError(
                    f"the run ends in round {round} on all peers: its average was abandoned {epoch + 1} times; "
                    + (why or "no more retries are allowed")
                )
            return None
        if not self.results.holds(round, decision["digest"]):
            return self._fetch(round, decision["digest"])
        vector = self.results.confirm()
        self.board.say(phase="done", finished=round)
        return Averaged(round, vector, self.decisions.members(round, epoch))

    def _await_outcome(self, round: int, epoch: int, digest: str) -> Any:
        """Wait for the roster's decision about the result; propose it when it is this peer's turn."""
        key, began, patience = outcome_key(round, epoch), time.monotonic(), self.rules.deadlines.average

        def look() -> Any:
            self._check_behind(round, [key], patient=bool(digest))
            decision = self.acceptor.decided(key)
            if decision is not None:
                return decision
            have = self._gathering.holders(round, epoch)
            waited = time.monotonic() - began
            waiting = self._gathering.unfinished(round, epoch)
            if digest and 2 * len(have) > self.n:
                if (not waiting or waited > 2.0) and waited > 0.5 * have.index(self.me):
                    return self.decisions.propose(key, {"kind": "done", "digest": digest})
            elif (not waiting and waited > GRACE) or waited > patience:
                return self.decisions.propose(key, {"kind": "abandoned"})
            return None

        decision = self.board.wait(look, 3 * patience)
        if decision is None:
            raise RunEndedError(_CUT_OFF)
        return decision

    # -- decisions --------------------------------------------------------------------------------------------

    def _check_behind(self, round: int, keys: list[str], *, patient: bool = False) -> None:
        """Raise `_BehindError` if others hold this round's result; learn what they know first."""
        ahead = [peer for peer in self._others() if self.board.status(peer).finished >= round]
        if not ahead:
            return
        self.decisions.learn(keys, ahead)
        if patient and all(self.acceptor.decided(key) is not None for key in keys):
            return
        raise _BehindError

    def _check_decision(self, round: int, epoch: int) -> None:
        """React to a decision about this average that was taken while this peer waited to begin."""
        keys = [commit_key(round, epoch), outcome_key(round, epoch)]
        self._check_behind(round, keys)
        later = [
            peer
            for peer in self._others()
            if (s := self.board.status(peer)).round == round
            and (s.epoch > epoch or s.phase in ("finishing", "recovering", "have"))
        ]
        if later and self.acceptor.decided(keys[0]) is None:
            self.decisions.learn(keys, later)
        decision = self.acceptor.decided(keys[0])
        if decision is None:
            return
        if decision["kind"] == "fail":
            raise RunEndedError(f"the run ends in round {round} on all peers: {decision['reason']}")
        if decision["kind"] == "void":
            raise _VoidError
        raise _MovedError

    def _confirm_pending(self) -> None:
        """After a restart: confirm a result that was decided before this peer was killed."""
        pending = self.results.pending
        if pending is None:
            return
        decision = self.acceptor.decided(outcome_key(pending.round, pending.epoch)) or {}
        if decision.get("digest") == pending.digest:
            self.results.confirm()

    def _approve(self, key: str, value: Any) -> bool:
        """Tell whether this peer accepts a value (see `Acceptor`)."""
        what, round, epoch = key.split("/")
        mine = self.board.mine
        if what == "outcome" and value["kind"] == "done":
            return self.results.holds(int(round), value["digest"])
        if what == "commit" and value["kind"] == "members":
            here = (mine.round, mine.epoch) == (int(round), int(epoch))
            return not here or mine.attempt <= value["attempt"]
        return True

    # -- the others -------------------------------------------------------------------------------------------

    def _fetch(self, round: int, digest: str) -> Averaged:
        """Get the result of a round, or of a later one, from those that hold it."""
        deadline = time.monotonic() + self.rules.deadlines.average
        while time.monotonic() < deadline:
            for peer in self._others():
                if not self.board.present(peer) or self.board.status(peer).finished < round:
                    continue
                stream = self.endpoint.fetch(peer, {"kind": "model"}, self.rules.deadlines.average)
                try:
                    at, vector = self.results.receive(stream, round, digest)
                except (PeerLostError, FrameError) as error:
                    log.warning("cannot fetch the model from %s: %s", self._name(peer), error)
                    continue
                self.board.say(phase="done", finished=at)
                return Averaged(at, vector, fetched=True)
            self.board.wait(lambda: False, 0.2)
        raise PeerLostError(f"nobody could provide the result of round {round}; start this peer again")

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


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}
