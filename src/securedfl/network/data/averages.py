"""How averages are computed, the same on all peers; and what came out of each, as the log tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from securedfl.errors import InvalidInputError, PeerLostError
from securedfl.network.core.entries import Begin, Commit, Entry
from securedfl.network.data.driver import CHUNK, Procedure
from securedfl.privacy.ledger import Tried
from securedfl.protocols.steps import Array, PeerProtocol

_BLOCK = 1 << 16
"""Values looked at in one go, so that they stay in the cache."""


class RunEndedError(PeerLostError):
    """An operator ended the run for all, or removed this peer from the roster."""


@dataclass(frozen=True, kw_only=True)
class Averages:
    """How averages are computed.

    Attributes
    ----------
    protocol
        Gives the protocol for so many members and a turn, with design and options filled in. The turn is the round, but
        0 as long as there is no model.
    size, dtype
        Of the vectors that are averaged.
    result_size, model
        Of the result that all keep, and how it follows from a mean, the turn, and the result before (called if needed).
    commit_step
        As the protocol's row says.
    chunk
        Parameters per chunk.
    """

    protocol: Callable[[int, int], PeerProtocol]
    size: int
    dtype: str
    result_size: int
    model: Callable[[Array, int, Callable[[], Array | None]], Array] = lambda mean, _turn, _before: mean
    commit_step: int = 0
    chunk: int = CHUNK

    def recipe(self, me: int, n: int, turn: int) -> Procedure:
        """Return how one of n members runs an average."""
        return Procedure(self.protocol(n, turn), me, n, self.size, self.dtype, self.commit_step, self.chunk)


@dataclass(frozen=True)
class Averaged:
    """What came out of a round.

    Attributes
    ----------
    round
        The round of the result; later than asked for if this peer was left behind.
    vector
        The model that all hold now, read-only; after a void round, what the round before gave; empty if there is none.
    members
        Who took part.
    attempts, tried
        How many attempts were committed to, and all of them.
    fetched, void
        Whether this peer got the result from others; whether the round's updates were lost.
    seconds, waited
        Time in all, and time spent waiting for others to get ready.
    """

    round: int
    vector: Array = field(repr=False)
    members: tuple[int, ...] = ()
    attempts: int = 1
    tried: tuple[Tried, ...] = ()
    fetched: bool = False
    void: bool = False
    seconds: float = 0.0
    waited: float = 0.0


def attempts_of(entries: Iterable[Entry], can_lose: bool) -> dict[int, tuple[Tried, ...]]:
    """Return the attempts of every round that the log tells of, in order."""
    found: dict[int, list[Tried]] = {}
    for entry in entries:
        match entry:
            case Begin(round, attempt, members):
                before = found.setdefault(round, [])
                before.append(Tried(sum(one.opened for one in before), attempt, members, opened=not can_lose))
            case Commit(round, _) if found.get(round):
                found[round][-1] = replace(found[round][-1], opened=True)
    return {round: tuple(tried) for round, tried in found.items()}


def check_own(vector: Array, name: str) -> None:
    """Refuse to share what cannot be averaged."""
    index = _first_not_finite(vector)
    if index is not None:
        raise InvalidInputError(
            f"the parameters of {name} are not finite (first at index {index}); only finite numbers can be averaged"
        )


def check_finite(result: Array) -> None:
    """Raise `InvalidInputError` if an average is not finite. All peers hold the same bits, so all of them raise."""
    if _first_not_finite(result) is not None:
        raise InvalidInputError(
            "the average is not finite: a peer's parameters overflowed the vector's dtype; nobody applies it"
        )


def _first_not_finite(vector: Array) -> int | None:
    for start in range(0, len(vector) if vector.dtype.kind == "f" else 0, _BLOCK):
        block = vector[start : start + _BLOCK]
        with np.errstate(over="ignore", invalid="ignore"):
            total = block.sum()
        # one pass: where a sum is finite, so is every summand; where it is not, it may only be too large
        if not np.isfinite(total):
            finite = np.isfinite(block)
            if not finite.all():
                return start + int(finite.argmin())
    return None
