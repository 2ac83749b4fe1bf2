"""A prime field in machine words: elements are unsigned integers below p, arithmetic is exact, masks are uniform.

p leaves one bit of the word free (two for 64 bits), so that a sum of two elements never overflows. Reductions are a
subtraction and a minimum: of s and s - p, the one that did not wrap around is the residue.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from securedfl.protocols.steps import Array, Draw

PRIMES = {16: 32749, 32: 2**31 - 1, 64: 2**61 - 1}
"""The field per width of a word: the largest prime below half of its range, or Mersenne's."""


class Linear(Protocol):
    """What a protocol over a field computes with: numbers when it runs, symbols when it is audited."""

    def uniform(self, draw: Draw, like: Array) -> Array:
        """Return fresh elements, uniform over the whole field."""

    def add(self, a: Array, b: Array) -> Array:
        """Return a + b."""

    def subtract(self, a: Array, b: Array) -> Array:
        """Return a - b."""

    def divide(self, a: Array, n: int) -> Array:
        """Return a / n for a small whole number."""

    def total(self, arrays: Sequence[Array]) -> Array:
        """Return the sum."""


@dataclass(frozen=True)
class PrimeWords:
    """The integers modulo the prime of a word's width, in arrays of that word."""

    bits: int

    @property
    def prime(self) -> int:
        """The modulus."""
        return PRIMES[self.bits]

    def uniform(self, draw: Draw, like: Array) -> Array:
        """Return fresh elements, uniform over the whole field: as many bits as p has, again where not below p."""
        prime, mask = (like.dtype.type(value) for value in (self.prime, (1 << self.prime.bit_length()) - 1))
        drawn = draw(like)
        drawn &= mask
        while drawn.size and drawn.max() >= prime:
            beyond = drawn >= prime
            drawn[beyond] = draw(drawn[beyond]) & mask
        return drawn

    def add(self, a: Array, b: Array) -> Array:
        """Return a + b."""
        return self._reduced(a + b)

    def subtract(self, a: Array, b: Array) -> Array:
        """Return a - b."""
        result: Array = a - b
        np.minimum(result, np.add(result, self._p(a), out=_scratch(a, a.dtype)), out=result)
        return result

    def total(self, arrays: Sequence[Array]) -> Array:
        """Return the sum."""
        result = arrays[0].copy() if len(arrays) == 1 else self.add(arrays[0], arrays[1])
        for array in arrays[2:]:
            result += array
            self._reduced(result)
        return result

    def divide(self, a: Array, n: int) -> Array:
        """Return a / n."""
        if n == 2:
            # half of an odd element is half of what is left without its last bit, and (p + 1) / 2
            result: Array = a >> a.dtype.type(1)
            last = np.bitwise_and(a, a.dtype.type(1), out=_scratch(a, a.dtype))
            last *= a.dtype.type((self.prime + 1) // 2)
            result += last
            return result
        if self.bits == 32:
            # times 1/n in words of 64 bits, where 2^31 is 1
            product = np.multiply(a, np.uint64(pow(n, -1, self.prime)), out=_scratch(a, np.uint64))
            high = np.right_shift(product, np.uint64(31), out=_scratch(a, np.uint64, 1))
            product &= np.uint64(self.prime)
            product += high
            return self._reduced(product.astype(a.dtype))
        # the quotient, and of the remainder its part in a table of n
        quotient = a // a.dtype.type(n)
        remainder = a - quotient * a.dtype.type(n)
        quotient += np.take(_parts(self.prime, n, a.dtype.str), remainder)
        return self._reduced(quotient)

    def _p(self, like: Array) -> Any:
        return like.dtype.type(self.prime)

    def _reduced(self, total: Array) -> Array:
        """Return what is below 2 p modulo p, in place."""
        np.minimum(total, np.subtract(total, self._p(total), out=_scratch(total, total.dtype)), out=total)
        return total


class _Scratch(threading.local):
    """Memory that intermediate results are written to again and again; one for each thread."""

    def __init__(self) -> None:
        self.bytes = [np.empty(0, dtype=np.uint8)] * 2


_SCRATCH = _Scratch()


def _scratch(like: Array, dtype: npt.DTypeLike, number: int = 0) -> Array:
    """Return memory in the shape of an array, which the next call gives to somebody else."""
    needed = like.size * np.dtype(dtype).itemsize
    if _SCRATCH.bytes[number].size < needed:
        _SCRATCH.bytes[number] = np.empty(needed, dtype=np.uint8)
    return _SCRATCH.bytes[number][:needed].view(dtype).reshape(like.shape)


@lru_cache(maxsize=64)
def _parts(prime: int, n: int, dtype: str) -> Array:
    """Return r / n modulo the prime for every remainder r."""
    inverse = pow(n, -1, prime)
    return np.array([r * inverse % prime for r in range(n)], dtype=dtype)


class Native:
    """Arithmetic that the elements' own operators do."""

    def add(self, a: Array, b: Array) -> Array:
        """Return a + b."""
        result: Array = a + b
        return result

    def subtract(self, a: Array, b: Array) -> Array:
        """Return a - b."""
        result: Array = a - b
        return result

    def multiply(self, a: Array, b: Array) -> Array:
        """Return a * b."""
        result: Array = a * b
        return result


class FieldSymbols(Native):
    """The same on symbols, whose own arithmetic is that of the field; nothing is encoded."""

    def uniform(self, draw: Draw, like: Array) -> Array:
        """Return fresh symbols."""
        return draw(like)

    def divide(self, a: Array, n: int) -> Array:
        """Return a / n."""
        result: Array = a * Fraction(1, n)
        return result

    def total(self, arrays: Sequence[Array]) -> Array:
        """Return the sum."""
        result: Any = sum(arrays[1:], arrays[0])
        return np.asarray(result)
