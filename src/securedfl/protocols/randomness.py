"""Random masks: an AES-256-CTR keystream, keyed by the operating system or, for experiments, by a seed."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from securedfl.errors import InvalidInputError
from securedfl.protocols.steps import Array

_BLOCK = 16  # bytes of one AES block, the unit of the counter
_PIECE = 1 << 20  # bytes encrypted at a time, so that the zeros stay in the cache


def keystream(key: bytes, nbytes: int, *, start: int = 0) -> Array:
    """Return ``nbytes`` of the AES-256-CTR keystream of a 32-byte key, from byte ``start`` on, as uint8."""
    skip = start % _BLOCK
    counter = (start // _BLOCK).to_bytes(_BLOCK, "big")
    encryptor = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()
    stream = np.empty(skip + nbytes, dtype=np.uint8)
    for at in range(0, stream.size, _PIECE):
        piece = stream[at : at + _PIECE]
        encryptor.update_into(_zeros(piece.size), piece.data)
    return stream[skip:]


def ring(stream: Array, dtype: npt.DTypeLike) -> Array:
    """Read bytes as unsigned integers, in the same order on every machine."""
    words = stream.view(dtype)
    return words if sys.byteorder == "little" else words.byteswap()


class SecretDraw:
    """Draws from a keystream under a fresh key of the operating system. Nobody can draw the same again."""

    def __call__(self, like: Array) -> Array:
        """Return uniform numbers in the shape and dtype of ``like``."""
        return _uniform(self.seed(), like, start=0)

    def seed(self) -> bytes:
        """Return 32 fresh bytes, to be expanded into a mask here and by the peer that they are sent to."""
        return os.urandom(32)


secret_uniform = SecretDraw()


class InsecureSeededDraw:
    """Draws that anyone with the seed can repeat: for experiments and tests, never for private parameters.

    The numbers depend on (seed, peer, round, number of the draw) and the place in the vector, so that neither the
    chunk size nor the order of work changes them.

    Parameters
    ----------
    seed, peer, round
        What the stream is derived from.
    offset
        The place of this chunk in the whole vector.
    """

    def __init__(self, seed: int, *, peer: int, round: int = 0, offset: int = 0) -> None:
        self._name = f"securedfl insecure draw {seed} {round} {peer}"
        self._offset = offset
        self._count = 0

    def __call__(self, like: Array) -> Array:
        """Draw the next array of this stream: U[0, 1) for floats, the whole ring for unsigned integers."""
        key = self._key(str(self._count))
        per_row = like.dtype.itemsize * (like.size // max(len(like), 1))
        return _uniform(key, like, start=self._offset * per_row)

    def seed(self) -> bytes:
        """Return the next 32-byte seed; another one in every chunk, because a mask must never cover two of them."""
        return self._key(f"{self._count} seed at {self._offset}")

    def _key(self, name: str) -> bytes:
        self._count += 1
        return hashlib.sha256(f"{self._name} {name}".encode()).digest()


def _uniform(key: bytes, like: Array, *, start: int) -> Array:
    """Turn keystream into uniform floats (24 random bits for float32, 53 for float64) or unsigned integers (all)."""
    if like.dtype.kind == "u":
        return ring(keystream(key, like.nbytes, start=start), like.dtype).reshape(like.shape)
    if like.dtype not in (np.float32, np.float64):
        raise InvalidInputError(f"masks are drawn for float32 and float64, not {like.dtype}; convert the vector first")
    # signed integers convert to floats twice as fast; after the shift none is negative
    word, signed, bits = ("<u4", "<i4", 24) if like.dtype == np.float32 else ("<u8", "<i8", 53)
    words = keystream(key, like.nbytes, start=start).view(word)
    words >>= 8 * like.dtype.itemsize - bits
    uniform: Array = words.view(signed).astype(like.dtype)
    uniform *= 2.0**-bits
    return uniform.reshape(like.shape)


@lru_cache(maxsize=8)
def _zeros(size: int) -> bytes:
    return bytes(size)
