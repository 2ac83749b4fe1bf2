"""What a protocol is: a generator that yields what a peer sends and is sent what the peer received.

A protocol does no input or output. It is called as ``generator(me, w, design, round=..., draw=..., **options)``: which
peer this is, its private parameters, who meets whom, the round of federated learning (each goes on with the partitions
after those of the round before), and where masks come from. It yields one ``{receiver: array}`` per step, is sent the
``{sender: array}`` of that step, and returns the average, whole or in pieces. A protocol that can lose peers has two
parts: the first only shares, so that nothing sent is a sum, and returns what it holds (`Held`); the second adds up and
is begun once the members are committed. Drivers (`securedfl.simulation`, `securedfl.network`, `securedfl.privacy`) give
protocols life: they move the messages, cut vectors into chunks and choose where random masks come from. Two rules
follow for whoever writes one:

- parameters lie along axis 0, and the arithmetic is element-wise and ignores any further axes (the audit uses one);
- a message that was yielded or received is read-only: drivers pass references, not copies.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from securedfl.errors import PeerLostError

Array = npt.NDArray[Any]
Message = Any
"""An array, or a `securedfl.protocols.masks.Mask`: an array that can travel as a seed. Both have ``nbytes``."""
Outbox = dict[int, Message]
Steps = Generator[Outbox, Mapping[int, Message], Any]
"""A running protocol; it returns the average, whole or in pieces, or `Held` if it is in two parts."""
PeerProtocol = Callable[..., Steps]
"""A protocol with its design and options filled in: called as ``protocol(me, w, draw=draw)``."""
Draw = Callable[[Array], Array]
"""Returns fresh random numbers in the shape and dtype of its argument: uniform in [0, 1) for floats, uniform over the
whole ring for unsigned integers. A draw with a method ``seed()`` can also name 32-byte seeds for masks that travel."""
Options = Mapping[str, Any]
"""Keyword arguments of a protocol by name."""


@runtime_checkable
class Held(Protocol):
    """What a peer holds when all members have shared; nothing that was sent so far is a sum of anybody's parameters."""

    def finish(self, lost: frozenset[int] = frozenset()) -> Steps:
        """Add up and return the average of all members, without those that were lost since; may be repeated."""

    def check_recoverable(self, lost: frozenset[int]) -> None:
        """Raise `PeerLostError`, on all peers alike, if the average cannot be finished without the lost."""


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What follows from a protocol's options on a design.

    Attributes
    ----------
    options
        Checked, and completed where one follows from another.
    partitions
        How many partitions of the design an average uses, the next ones in each round; None if that is not known.
    parts
        How many parts of equal numbers of steps the audit reports on: ADMM's iterations.
    joined
        Whether the connected components of the partitions used say all that is learned (docs/mathematics/privacy.md).
    widths
        Of bounded masks: how wide the interval is that a message of each part leaves for a parameter.
    """

    options: Options
    partitions: int | None = None
    parts: int = 1
    joined: bool = False
    widths: tuple[float, ...] = ()


class MissingMessageError(PeerLostError):
    """A message that the protocol needs did not arrive, and from whom."""

    def __init__(self, sender: int) -> None:
        self.sender = sender
        super().__init__(f"nothing arrived from peer {sender}")


class Inbox(dict[int, Message]):
    """What a peer received in one step; reading a message that did not arrive raises `MissingMessageError`."""

    def __missing__(self, sender: int) -> Message:
        raise MissingMessageError(sender)


def in_one_part(protocol: PeerProtocol, lost: frozenset[int] = frozenset()) -> PeerProtocol:
    """Return both parts of a protocol as one, without those that are lost in between; a single part stays as it is."""

    def both(me: int, w: Array, **options: Any) -> Steps:
        held = yield from protocol(me, w, **options)
        if not isinstance(held, Held):
            return held
        return None if me in lost else (yield from held.finish(lost))

    return both


def whole(average: Array | tuple[Array, ...]) -> Array:
    """Return an average as one array; protocols may return it in pieces, so that drivers put it where they want it."""
    return np.concatenate(average) if isinstance(average, tuple) else average


def total(arrays: Sequence[Array]) -> Array:
    """Add arrays in the given order, so that all who add the same arrays get the same bits."""
    if len(arrays) == 1:
        return arrays[0].copy()
    result = arrays[0] + arrays[1]
    for array in arrays[2:]:
        result += array
    return result
