"""The network driver: runs one peer's generators, one per chunk, over whatever moves the messages.

Chunks are pipelined: while the messages of one chunk travel, the next ones are computed. A protocol may have a
*commit step*: everything before it happens for the whole vector first (`LocalAttempt.share`); then the peers agree
who takes part, and only then does anything leave that is a sum (`LocalAttempt.finish`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from securedfl.errors import InvalidInputError, PeerLostError
from securedfl.network.data.mailbox import Excused, Mailbox, StalledError
from securedfl.network.data.memory import ROOMS
from securedfl.network.data.parcels import Position, pack
from securedfl.network.data.routes import Routes, recoverable, routes_of
from securedfl.network.wire.streams import Outgoing
from securedfl.protocols.masks import Mask
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.steps import Array, Draw, Held, Inbox, Outbox, PeerProtocol, Steps

CHUNK = 1 << 18
"""Parameters per chunk: 1 MiB of float32. Messages cost more than their bytes, and chunks in flight cost memory."""

SLICED_CHUNK = 3 << 18
"""The same for protocols whose messages are slices of a chunk."""

DEPTH = 3
"""Chunks in flight at a time: one that is computed while the messages of the others travel."""


@dataclass(frozen=True)
class Procedure:
    """How one peer runs one average: the protocol, its chunks and routes. The same for all peers but for ``me``."""

    protocol: PeerProtocol
    me: int
    n: int
    size: int
    dtype: str
    commit_step: int = 0
    chunk: int = CHUNK

    @property
    def starts(self) -> range:
        """Where the chunks of a vector begin."""
        return range(0, self.size, self.chunk)

    @cached_property
    def repeatable(self) -> bool:
        """Whether those left could finish again, without a member that was lost."""
        lost = range(self.n if self.commit_step else 0)
        return any(recoverable(self.protocol, self.n, frozenset({one})) for one in lost)

    def routes(self, lost: frozenset[int] = frozenset()) -> Sequence[Routes]:
        """Return the routes of every chunk; when members were lost after the commit, of what is left to do."""
        # there are at most two lengths of chunk
        lengths = [min(self.chunk, self.size - start) for start in self.starts]
        found = {length: routes_of(self.me, self.protocol, self.n, length, self.dtype, lost) for length in set(lengths)}
        if lost:
            done: Routes = ({},) * self.commit_step
            found = {length: done + routes[self.commit_step :] for length, routes in found.items()}
        return [found[length] for length in lengths]


@dataclass(frozen=True)
class _Chunk:
    """A chunk in progress: its generator, the step that it is in, and what is still to be sent in it."""

    steps: Steps
    step: int
    outbox: Outbox


class LocalAttempt:
    """One try at one average, seen from one peer.

    Parameters
    ----------
    recipe
        What to run.
    vector
        This peer's parameters.
    draws
        Gives the draw for the chunk that starts at an offset; by default fresh cryptographic masks.
    patience, excused
        Seconds without progress after which a peer counts as lost; and whether it is too early to miss these peers, as
        long as not everything before the commit step is done.

    Attributes
    ----------
    holds
        Whether everything before the commit step is done.
    """

    _mailbox: Mailbox
    _streams: Mapping[int, Outgoing]

    def __init__(
        self,
        recipe: Procedure,
        vector: Array,
        *,
        draws: Callable[[int], Draw] | None = None,
        patience: float = 60.0,
        excused: Excused = lambda _peers: False,
    ) -> None:
        if vector.shape != (recipe.size,) or vector.dtype != np.dtype(recipe.dtype):
            raise InvalidInputError(
                f"the vector has shape {vector.shape} and dtype {vector.dtype}, "
                f"but the federation agreed on ({recipe.size},) and {recipe.dtype}"
            )
        self._recipe, self._vector = recipe, vector
        self._draws = draws or (lambda _offset: secret_uniform)
        self._patience, self._excused = patience, excused
        self._held: dict[int, Held] = {}
        self.holds = False
        self._lost: frozenset[int] = frozenset()
        self._result: Array | None = None

    def connect(self, mailbox: Mailbox, streams: Mapping[int, Outgoing]) -> None:
        """Say where messages come from and go to; peers are numbered as in the recipe."""
        self._mailbox, self._streams = mailbox, streams

    def share(self) -> None:
        """Do everything that comes before the commit step. Nothing that was sent is a sum of anybody's parameters."""
        if self._recipe.commit_step:
            self._run()
            self.holds = True

    def finish(self, lost: frozenset[int] = frozenset()) -> Array:
        """Do the rest and return the average of all members; with stand-ins also without those lost, and repeatedly."""
        self._lost = lost
        self._result = ROOMS.like(self._vector)
        self._run()
        result, self._result = self._result, None
        return result

    def forget(self) -> None:
        """Let go of all memory; nothing can be finished any more."""
        self._held.clear()
        self._vector = self._vector[:0].copy()

    def _run(self) -> None:
        """Advance all chunks to the end of the protocol, or of its first part."""
        active: dict[int, _Chunk] = {}
        ahead = list(reversed(range(len(self._recipe.starts))))
        while ahead or active:
            waiting = {chunk: state.step for chunk, state in active.items()}
            found = self._mailbox.poll(waiting)
            if found is None and ahead and len(active) < DEPTH:
                chunk = ahead.pop()
                state = self._begin(chunk)
            else:
                chunk, inbox = found or self._wait(waiting)
                before = active.pop(chunk)
                state = self._advance(chunk, before.steps, before.step + 1, inbox)
            if state is not None:
                active[chunk] = state
                self._send(chunk, state)

    def _wait(self, waiting: Mapping[int, int]) -> tuple[int, Inbox]:
        """Wait for a chunk that can go on, and its inbox."""
        return self._mailbox.take(waiting, self._patience, lambda peers: not self.holds and self._excused(peers))

    def _send(self, chunk: int, state: _Chunk) -> None:
        """Send what a chunk has to say."""
        at = self._mailbox.place
        for receiver, message in state.outbox.items():
            self._put(receiver, Position(at.run, at.round, at.attempt, state.step, chunk), message)
        state.outbox.clear()

    def _put(self, receiver: int, place: Position, message: Any) -> None:
        """Send a message; blocks while too much waits.

        Not for as long as others wait for this peer: they would complain about it before it can say who holds it up.
        """
        try:
            self._streams[receiver].put(*pack(place, message), timeout=self._patience / 2)
        except PeerLostError as error:
            raise StalledError(frozenset({receiver}), str(error)) from None

    def _begin(self, chunk: int) -> _Chunk | None:
        """Start a chunk: the protocol itself, or the finish of what it holds."""
        recipe, start = self._recipe, chunk * self._recipe.chunk
        if self.holds:
            # what nobody could finish a second time makes room for the result
            held = self._held[chunk] if recipe.repeatable else self._held.pop(chunk)
            return self._advance(chunk, held.finish(self._lost), recipe.commit_step)
        part = self._vector[start : start + recipe.chunk]
        return self._advance(chunk, recipe.protocol(recipe.me, part, draw=self._draws(start)), 0)

    def _advance(self, chunk: int, steps: Steps, step: int, inbox: Inbox | None = None) -> _Chunk | None:
        """Hand a chunk its inbox, if it waits for one; return what it does next, None if it has ended."""
        ended, result, outbox = False, None, Outbox()
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                outbox = next(steps) if inbox is None else steps.send(inbox)
            except StopIteration as stop:  # handled outside, so that no later traceback can show parameters
                ended, result = True, stop.value
        if inbox is not None:
            inbox.clear()  # the protocol may still hold it, but has no more use for it
        if ended:
            self._keep(chunk, result)
            return None
        for message in outbox.values():
            if isinstance(message, Mask):
                message.forget()  # its seed is what travels
        return _Chunk(steps, step, outbox)

    def _keep(self, chunk: int, result: Any) -> None:
        """Put a chunk's average, whole or in pieces, in its place; or keep what it holds at its commit."""
        start = chunk * self._recipe.chunk
        if isinstance(result, Held):
            self._held[chunk] = result
            return
        if self._result is None:
            raise RuntimeError("the protocol ended before its commit step")
        for piece in result if isinstance(result, tuple) else (result,):
            self._result[start : start + len(piece)] = piece
            start += len(piece)
