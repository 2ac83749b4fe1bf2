"""Masks: random ring elements that can travel as the 32-byte seed they are expanded from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.errors import InvalidInputError
from securedfl.protocols.randomness import keystream, ring
from securedfl.protocols.steps import Array, Draw, Message

SEED_BYTES = 32


class Mask:
    """A uniform array over the ring of an unsigned dtype, named by its seed.

    Whether the seed travels or the array is the driver's business; ``nbytes`` is what travels at best. The seed is a
    secret between the peer that drew it and the peer that it is sent to: it is kept out of ``repr``.
    """

    __slots__ = ("_array", "dtype", "seed", "shape")
    nbytes = SEED_BYTES

    def __init__(self, seed: bytes, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.seed, self.shape, self.dtype = seed, shape, np.dtype(dtype)
        if len(seed) != SEED_BYTES or self.dtype.kind != "u":
            raise InvalidInputError(f"a mask needs {SEED_BYTES} bytes of seed and an unsigned dtype")
        self._array: Array | None = None

    @property
    def array(self) -> Array:
        """The mask itself, expanded on first use by AES-256 in counter mode and kept; read-only."""
        if self._array is None:
            self._array = self.expand()
        return self._array

    def expand(self) -> Array:
        """Return the mask itself without keeping it."""
        if self._array is not None:
            return self._array
        array = ring(keystream(self.seed, math.prod(self.shape) * self.dtype.itemsize), self.dtype)
        if len(self.shape) != 1:
            array = array.reshape(self.shape)
        array.flags.writeable = False
        return array

    def forget(self) -> None:
        """Keep the seed only; the mask can be expanded again."""
        self._array = None

    def __repr__(self) -> str:
        return f"Mask(shape={self.shape}, dtype={self.dtype})"


def mask(draw: Draw, like: Array) -> Message:
    """Draw a mask for an array: one that can travel as a seed if the draw names seeds and the array is of a ring.

    A draw that has no ``seed`` method, such as the audit's, gives its plain array.
    """
    seed: Any = getattr(draw, "seed", None)
    if seed is None or like.dtype.kind != "u":
        return draw(like)
    return Mask(seed(), like.shape, like.dtype)


def values(message: Message, *, keep: bool = True) -> Array:
    """Return the array that a message stands for; a mask keeps its own unless told not to."""
    if isinstance(message, Mask):
        return message.array if keep else message.expand()
    array: Array = message
    return array
