"""What a protocol is: a generator that yields what a peer sends and is sent what the peer received.

A protocol does no input or output. It is called as ``protocol(me, w, design, round=..., draw=..., **options)``,
yields one ``{receiver: array}`` per step, is sent the ``{sender: array}`` of that step, and returns the average,
whole or in pieces.
Drivers (`securedfl.simulation`, `securedfl.privacy`) give it life: they move the messages, cut vectors into chunks
and choose where random masks come from. Two rules follow for whoever writes a protocol:

- parameters lie along axis 0, and the arithmetic is element-wise and ignores any further axes (the audit uses one);
- a message that was yielded or received is read-only: drivers pass references, not copies.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.errors import PeerLostError

Array = npt.NDArray[Any]
Message = Any
"""An array, or a `securedfl.protocols.masks.Mask`: an array that can travel as a seed. Both have ``nbytes``."""
Outbox = dict[int, Message]
Steps = Generator[Outbox, Mapping[int, Message], Any]
"""A running protocol; it returns the average, whole or in pieces, or `Committed` if it may go on without some peers."""
Draw = Callable[[Array], Array]
"""Returns fresh random numbers in the shape and dtype of its argument: uniform in [0, 1) for floats, uniform over the
whole ring for unsigned integers. A draw with a method ``seed()`` can also name 32-byte seeds for masks that travel."""


@dataclass(frozen=True)
class Committed:
    """An average and the peers that it is of."""

    average: Array
    members: tuple[int, ...]
    attempts: int = 1


class Inbox(dict[int, Message]):
    """What a peer received in one step; reading a message that did not arrive raises `PeerLostError`."""

    def __missing__(self, sender: int) -> Message:
        raise PeerLostError(f"nothing arrived from peer {sender}")


def whole(average: Array | tuple[Array, ...]) -> Array:
    """Return an average as one array; protocols may return it in pieces, so that drivers put it where they want it."""
    return np.concatenate(average) if isinstance(average, tuple) else average


class PeerExcludedError(PeerLostError):
    """The other peers agreed to go on without this one, because something that it sent did not arrive."""


def total(arrays: Sequence[Array]) -> Array:
    """Add arrays in the given order, so that all who add the same arrays get the same bits."""
    if len(arrays) == 1:
        return arrays[0].copy()
    result = arrays[0] + arrays[1]
    for array in arrays[2:]:
        result += array
    return result
