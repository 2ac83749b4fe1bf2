"""A team whose peers train in shards; a lost shard starts again where the last round left its peers."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from securedfl.errors import ConfigError
from securedfl.learning.training.cluster.placement import Needs, Placement, moved, seats, size, stated
from securedfl.learning.training.cluster.ray_host import RayHost
from securedfl.learning.training.cluster.shard import Answers, versions
from securedfl.learning.training.failures import LostError, WorkerFailure, WorkerLostError
from securedfl.learning.training.task import State, Task
from securedfl.learning.training.team import CHANGES, ROWLESS, WRITES, Team
from securedfl.learning.training.trainer import one_thread
from securedfl.parameters import Array

PIECES = 8
"""In at most so many pieces a shard hands over what it trained, so that progress is seen and messages stay small."""

MOST_BYTES = 32_000_000
"""Of rows in a piece, where that does not take more than `PIECES`."""

STARTED_WITHIN = 300.0
"""Seconds that shards may take to start; a busy machine needs half a minute for PyTorch."""

MOST_LOSSES = 3
"""So many times in a row a shard is started again; then something is wrong with it."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class _Common:
    """A row that several peers have, in this process and for the nodes."""

    row: Array
    digest: bytes
    shared: Any


@dataclass
class _Running:
    """A shard as it runs: where, how the host knows it, and how many times in a row it was lost."""

    seat: Placement
    handle: Any
    losses: int = 0


class ShardTeam(Team):
    """Trains peers in shards of a host; the numbers are those of `InProcessTeam`.

    This process has all rows, because it averages. A row travels to a shard only if it was changed here, and once per
    node if all peers have the same. What a shard trained comes back with its peers' states, so that nothing but the
    round at hand is lost with a shard.

    Parameters
    ----------
    task, workers, rows, gpu
        As of `make_team`; workers are shards, each of which takes a core, or a GPU.
    host
        Who runs the shards; closed with the team.
    tell
        Hears in one line what the user should know: the memory of a shard, and that one was lost.
    """

    rows_travel = True

    def __init__(
        self,
        task: Task,
        host: RayHost,
        workers: int | Literal["auto"],
        tell: Tell,
        rows: int | None = None,
        *,
        gpu: bool = False,
    ) -> None:
        super().__init__(task.peers, rows)
        self._task, self._host, self._tell = task, host, tell
        # of the row that a peer's shard has
        self._held: list[bytes] = [b""] * task.peers
        # None: as a peer is before anything has happened to it
        self._states: list[State | None] = [None] * task.peers
        self._common: _Common | None = None
        # that the last training took; the first one is not known
        self._took = math.inf
        try:
            with one_thread():
                self.schema, self.buffers = task.schema(), task.buffers()
                self._needs = Needs.of(task, rows)
            placed = seats(host.nodes(), task.loads, self._needs, workers, gpu=gpu)
            tell(stated(placed, self._needs))
            self.workers = len(placed)
            self.parameters = np.zeros((rows or task.peers, self.schema.size), dtype=self.schema.dtype)
            self._shards = [_Running(seat, self._start(seat, again=False)) for seat in placed]
            for shard in self._shards:
                try:
                    self._wait_for(shard)
                except LostError as error:
                    self._replace(shard, str(error))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the shards; may be called twice."""
        self._host.close()

    def states(self) -> list[State]:
        """Return what each peer keeps; of those that have trained, it came with that."""
        known = [state for state in self._states if state is not None]
        return known if len(known) == len(self._states) else super().states()

    def restore(self, parameters: Array, states: Sequence[State]) -> None:
        """Continue from saved parameters and what `states` gave."""
        # first, so that a shard that is lost meanwhile begins with them
        self._states = list(states)
        super().restore(parameters, states)

    def _start(self, seat: Placement, *, again: bool) -> Any:
        return self._host.start(seat, self._task.maker(seat.peers), again=again)

    def _wait_for(self, shard: _Running) -> None:
        """Wait until a shard is there, with the versions that are here."""
        there: tuple[str, ...] = self._answer(shard, "ready")
        if there != versions():
            raise ConfigError(
                f"a node of the cluster has {', '.join(there)}, but this process has {', '.join(versions())}; "
                "install the same versions everywhere, so that all compute the same bits"
            )

    def _answer(self, shard: _Running, method: str, *arguments: Any) -> Any:
        """Ask for one thing while a shard starts, and wait for the answer."""
        ticket = self._host.ask(shard.handle, method, *arguments)
        if not self._host.ready([ticket], STARTED_WITHIN):
            raise WorkerLostError(
                f"a shard has not started within {STARTED_WITHIN:.0f} s; other jobs may hold the cores of the cluster "
                "(`ray status` shows them): wait for them, or set workers to fewer"
            )
        answer = self._host.collect(ticket)
        if isinstance(answer, WorkerFailure):
            raise answer.error()
        return answer

    def _carry_out(self, command: str, argument: Any, peers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        if command in ("evaluate", "update and add"):
            argument = self._host.share(argument)
        if command not in ROWLESS:
            self._find_common(peers)
        pending: dict[Any, tuple[_Running, list[int]]] = {}
        began = time.monotonic()
        for shard in self._shards:
            asked = sorted(set(shard.seat.peers).intersection(peers))
            # a sum is as long as a row, however many peers it is of
            nbytes = self.parameters[0].nbytes * (len(asked) if command in WRITES else 1)
            count = pieces(self._took, nbytes) if command in CHANGES else 1
            for piece in _cut(asked, count):
                pending[self._ask(shard, command, piece, argument)] = shard, piece
        while pending:
            for ticket in self._host.ready(list(pending)):
                if ticket not in pending:  # of a shard that was lost a moment ago
                    continue
                shard, piece = pending.pop(ticket)
                try:
                    told = self._host.collect(ticket)
                except LostError as error:
                    others = [other for other, (whose, _) in pending.items() if whose is shard]
                    left = [piece, *(pending.pop(other)[1] for other in others)]
                    self._replace(shard, str(error))
                    for piece in left:
                        pending[self._ask(shard, command, piece, argument)] = shard, piece
                    continue
                if isinstance(told, WorkerFailure):
                    raise told.error()
                shard.losses = 0
                self._take(command, piece, told)
                yield from zip(piece, told.found, strict=True)
        if command in CHANGES and command != "initialise":
            self._took = time.monotonic() - began

    def _ask(self, shard: _Running, command: str, peers: Sequence[int], argument: Any) -> Any:
        """Ask a shard for something about some of its peers, with the rows of theirs that were changed here."""
        if command == "restore":
            argument = {peer: argument[peer] for peer in peers}
        keep = self._seats is None
        common, own, shared = self._common, dict[int, Array | None](), None
        for peer in () if command in ROWLESS else peers:
            row = self.parameters[self.row(peer)]
            same = common if common is not None and _equal(row, common.row) else None
            digest = _digest(row) if same is None else same.digest
            if digest == self._held[peer]:
                continue
            self._held[peer] = digest if keep else b""
            own[peer] = row.copy() if same is None else None
            shared = shared if same is None else same.shared
        return self._host.ask(shard.handle, "carry_out", command, list(peers), argument, shared, own, keep=keep)

    def _take(self, command: str, peers: Sequence[int], told: Answers) -> None:
        """Keep what a shard has trained: from now on these peers go on from here."""
        if command == "forget":
            for peer in peers:
                self._states[peer] = None
        for peer, row in zip(peers, told.rows, strict=False):
            self.parameters[self.row(peer)] = row
            if self._seats is None:
                self._held[peer] = _digest(self.parameters[peer])
        for peer, state in zip(peers, told.states, strict=False):
            # a message's arrays would keep the whole message
            self._states[peer] = {name: np.array(value) for name, value in state.items()}

    def _find_common(self, wanted: Sequence[int]) -> None:
        """Share a row that the first two peers have both, unless it is shared already."""
        if len(wanted) < 2:
            return
        row, other = (self.parameters[self.row(peer)] for peer in wanted[:2])
        if not _equal(row, other):
            return
        if self._common is None or not _equal(row, self._common.row):
            row = row.copy()
            self._common = _Common(row, _digest(row), self._host.share(row))

    def _replace(self, shard: _Running, why: str) -> None:
        """Start a lost shard again, on its node if that is still there, and give its peers what they go on from."""
        shard.losses += 1
        self._host.stop(shard.handle)
        others = [other.seat for other in self._shards if other is not shard]
        seat = moved(shard.seat, self._host.nodes(), others, self._needs)
        if seat is None or shard.losses > MOST_LOSSES:
            raise WorkerLostError(_given_up(shard.seat, why, room=seat is not None))
        self._tell(_lost(seat, why, moved=seat != shard.seat))
        for peer in seat.peers:
            self._held[peer] = b""
        shard.seat, shard.handle = seat, self._start(seat, again=True)
        states = {peer: state for peer in seat.peers if (state := self._states[peer]) is not None}
        try:
            self._wait_for(shard)
            self._answer(shard, "carry_out", "restore", list(states), states, None, {})
        except LostError as error:
            self._replace(shard, str(error))


def _lost(seat: Placement, why: str, *, moved: bool) -> str:
    why, where = ("its node is gone", f"on node {seat.node.name}") if moved else (why, "on the same node")
    return (
        f"A worker was lost ({why}): {_names(seat.peers)} start again {where}, from what the last round left, and "
        "repeat this one; no number changes"
    )


def _given_up(seat: Placement, why: str, *, room: bool) -> str:
    who = f"the worker of {_names(seat.peers)} was lost"
    if not room:
        return f"{who} ({why}), and no node that is left has {size(seat.memory)} for it; add nodes, then use --resume"
    return (
        f"{who} {MOST_LOSSES + 1} times in a row ({why}); memory may have run out: use fewer workers or larger nodes, "
        "then continue with --resume"
    )


def _names(peers: Sequence[int]) -> str:
    """Name peers, a few of them if they are many."""
    shown = ", ".join(map(str, peers[:6]))
    return f"peer{'s' if len(peers) > 1 else ''} {shown}" + (f" and {len(peers) - 6} more" if len(peers) > 6 else "")


def pieces(seconds: float, nbytes: int) -> int:
    """Return in how many pieces to hand over so many bytes of rows that took so long: none below a second or so."""
    return int(min(PIECES, max(1.0, seconds, nbytes / MOST_BYTES)))


def _cut(peers: Sequence[int], count: int) -> list[list[int]]:
    """Cut peers into at most so many pieces of about the same length, in order."""
    parts = min(count, len(peers))
    return [list(peers[len(peers) * at // parts : len(peers) * (at + 1) // parts]) for at in range(parts)]


def _equal(one: Array, other: Array) -> bool:
    """Say whether two rows have the same bits; zero and minus zero have not."""
    return bool(np.array_equal(one.view(np.uint8), other.view(np.uint8)))


def _digest(row: Array) -> bytes:
    return hashlib.sha256(row.data).digest()
