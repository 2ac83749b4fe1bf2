"""Fixed point: numbers as elements of a ring Z_2^b or a field Z_p, in which masks are perfectly uniform."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

import numpy as np

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.protocols.field import PRIMES, PrimeWords
from securedfl.protocols.steps import Array, Draw

DEFAULT_RANGES = {16: 0.25, 32: 8.0, 64: 4096.0}
"""Largest absolute value per width, such that the mean is off by less than 2^-20 for 32 and 2^-40 for 64 bits. 16 bits
are for differences, which are small (docs/concepts/shares.md)."""

_BLOCK = 1 << 16
"""Values encoded at a time, so that they stay in the cache from one pass to the next."""


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """Round to a multiple of a step, a power of two, and count modulo 2^bits; negative numbers wrap around.

    The sum of n codes stays below half the modulus, so that it never wraps unnoticed: n peers cost log2(n) bits of
    resolution, and every value is checked against the range.

    Parameters
    ----------
    bits
        16, 32 or 64; by default as wide as the vector's own numbers. Twice the bits are twice the bytes on the wire.
    range
        The largest absolute value that a parameter may have: a wider range means coarser steps. By default 8 for 32
        bits, 4096 for 64 bits and 0.25 for 16 bits, which are for differences.
    """

    bits: int | None = None
    range: float | None = None

    def __post_init__(self) -> None:
        if self.bits is not None and (type(self.bits) is not int or self.bits not in DEFAULT_RANGES):
            raise ConfigError(f"bits must be 16, 32 or 64, not {self.bits!r}")
        number = isinstance(self.range, int | float | np.number) and not isinstance(self.range, bool)
        if self.range is not None and not (number and 0 < self.range <= sys.float_info.max):
            raise ConfigError(f"the range must be a positive finite number, not {self.range!r}")

    def width(self, like: Array) -> int:
        """Return the number of bits of a code for vectors of this dtype."""
        if like.dtype not in (np.float32, np.float64):
            raise InvalidInputError(f"fixed point is for float32 and float64, not {like.dtype}; convert the vector")
        return self.bits or 8 * like.dtype.itemsize

    def modulus(self, bits: int) -> int:
        """Return what codes are counted modulo."""
        return int(2**bits)

    def limit(self, bits: int) -> float:
        """Return the largest absolute value that can be encoded."""
        return DEFAULT_RANGES[bits] if self.range is None else float(self.range)

    def fraction_bits(self, bits: int, n: int) -> int:
        """Return the largest f for which n values of the range, in steps of 2^-f, add up to below half the modulus."""
        return _fraction_bits(self.limit(bits), (self.modulus(bits) - 1) // 2, bits, n)

    def step(self, like: Array, n: int) -> float:
        """Return the distance of two numbers that can be told apart among n peers."""
        bits = self.width(like)
        return float(2.0 ** -self.fraction_bits(bits, n))

    def encode(self, w: Array, n: int) -> Array:
        """Return w in steps, rounded to nearest, as unsigned integers.

        Raises `UnencodableError` with the index of the first value that is not finite or beyond the range.
        """
        bits = self.width(w)
        limit, scale = self.limit(bits), 2.0 ** self.fraction_bits(bits, n)
        codes = np.empty(w.shape, dtype=f"u{bits // 8}")
        signed = codes.view(f"i{bits // 8}")
        # float32 cannot hold the integers of a 64-bit code; scaling by a power of two is exact in either type
        scaled = np.empty(w[:_BLOCK].shape, dtype=np.float64 if bits == 64 else w.dtype)
        for start in range(0, len(w), _BLOCK):
            block = w[start : start + _BLOCK]
            # min and max are NaN if any value is, and a comparison with NaN is false
            if block.size and not (-limit <= float(block.min()) and float(block.max()) <= limit):
                raise _refusal(w, limit, bits)
            steps = np.multiply(block, scale, out=scaled[: len(block)])
            np.rint(steps, out=steps)
            signed[start : start + _BLOCK] = steps
        return codes

    def decode(self, total: Array, n: int, like: Array) -> Array:
        """Return total / n as a float: one rounding to float64, one division, one rounding to the result's dtype."""
        bits = 8 * total.dtype.itemsize
        divisor = n * 2.0 ** self.fraction_bits(bits, n)
        result = np.empty(total.shape, dtype=like.dtype)
        for start in range(0, len(total), _BLOCK):
            block = self._signed(total[start : start + _BLOCK]).astype(np.float64)
            np.divide(block, divisor, out=block)
            result[start : start + _BLOCK] = block
        return result

    def _signed(self, total: Array) -> Array:
        """Return the whole numbers that codes stand for."""
        return total.view(f"i{total.dtype.itemsize}")


@dataclass(frozen=True, kw_only=True)
class FieldPoint(FixedPoint):
    """The same, counted modulo a prime (`securedfl.protocols.field`)."""

    def modulus(self, bits: int) -> int:
        """Return what codes are counted modulo."""
        return PRIMES[bits]

    def field(self, like: Array) -> PrimeWords:
        """Return the arithmetic of the codes of such vectors."""
        return PrimeWords(self.width(like))

    def encode(self, w: Array, n: int) -> Array:
        """Return w in steps, rounded to nearest, as elements of the field."""
        codes = super().encode(w, n)
        prime = codes.dtype.type(self.modulus(self.width(w)))
        for start in range(0, len(codes), _BLOCK):
            block = codes[start : start + _BLOCK]
            # a negative number, which wrapped around the word, becomes smaller by adding p, any other larger
            np.minimum(block, block + prime, out=block)
        return codes

    def _signed(self, total: Array) -> Array:
        prime = PRIMES[8 * total.dtype.itemsize]
        # above half of p, what an element lacks to p counts downwards
        negative = total > total.dtype.type(prime // 2)
        return super()._signed(total - negative * total.dtype.type(prime))


@dataclass(frozen=True)
class Symbols:
    """No encoding, and the symbols' own operators as the arithmetic of a ring or field: for the audit."""

    def encode(self, w: Array, n: int) -> Array:  # noqa: ARG002
        """Return a copy."""
        return w.copy()

    def decode(self, total: Array, n: int, like: Array) -> Array:  # noqa: ARG002
        """Return the total itself: whoever knows n knows the mean."""
        return total

    def field(self, like: Array) -> Symbols:  # noqa: ARG002
        """Return itself."""
        return self

    def uniform(self, draw: Draw, like: Array) -> Array:
        """Return fresh symbols."""
        return draw(like)

    def add(self, a: Array, b: Array, out: Array | None = None) -> Array:  # noqa: ARG002
        """Return a + b."""
        return np.asarray(a + b)

    def subtract(self, a: Array, b: Array, out: Array | None = None) -> Array:  # noqa: ARG002
        """Return a - b."""
        return np.asarray(a - b)

    def divide(self, a: Array, n: int) -> Array:
        """Return a / n."""
        return np.asarray(a * Fraction(1, n))

    def total(self, arrays: Sequence[Array]) -> Array:
        """Return the sum."""
        return np.asarray(sum(arrays[1:], arrays[0]))


class UnencodableError(InvalidInputError):
    """A value that the ring cannot hold, and where. The value is the peer's own secret, so it is not named."""

    def __init__(self, index: int, reason: str, *, peer: int | None = None, name: str = "") -> None:
        self.index, self.reason, self.peer, self.name = index, reason, peer, name
        place = f"parameter {name!r} (index {index} of the flat vector)" if name else f"index {index}"
        super().__init__(f"{place} of {'a peer' if peer is None else f'peer {peer}'} {reason}")

    def at(self, *, peer: int | None = None, start: int = 0, name: str = "") -> UnencodableError:
        """Return the same error with what the caller knows: the peer, the start of the chunk, the parameter's name."""
        known = self.peer if peer is None else peer
        return UnencodableError(self.index + start, self.reason, peer=known, name=name or self.name)


def _refusal(w: Array, limit: float, bits: int) -> UnencodableError:
    finite = np.isfinite(w)
    if not finite.all():
        return UnencodableError(_first(~finite), "is not a finite number; only finite numbers can be averaged")
    # compared in float64, because a limit rounded to float32 would be another limit
    beyond = np.abs(w.astype(np.float64)) > limit
    wider = "choose a wider range, at the price of coarser steps" + (", or more bits" if bits < 64 else "")
    return UnencodableError(_first(beyond), f"is beyond the range of -{limit:g} to {limit:g}; {wider}")


def _first(bad: Array) -> int:
    return int(np.argwhere(bad)[0][0])


@lru_cache(maxsize=64)
def _fraction_bits(range: float, half: int, bits: int, n: int) -> int:  # noqa: A002
    # so many more below a range of 1; 2**f must be a number, in float32 where numbers are scaled in that
    f = min(2 * bits - min(0, math.frexp(range)[1]), 1000 if bits == 64 else 126)
    if math.ldexp(range, f) < 1:
        raise ConfigError(f"a range of {range:g} is too small for any steps; use a larger one")
    while f >= 0 and n * math.ceil(Fraction(range) * 2**f) > half:
        f -= 1
    if f < 0:
        more = " or more bits" if bits < 64 else ""
        raise ConfigError(
            f"a range of {range:g} leaves no whole steps for {n} peers in {bits} bits; "
            f"use a range of at most {half // n}{more}"
        )
    return f


P = TypeVar("P", bound=FixedPoint)


def codec_of(
    kind: type[P],
    /,
    *,
    bits: int | None = None,
    range: float | None = None,  # noqa: A002
    codec: Symbols | None = None,
) -> P | Symbols:
    """Return how values become elements: fixed point of a kind with bits and range, or another codec instead.

    Parameters
    ----------
    bits, range
        See `FixedPoint`.
    codec
        Another encoding; `Symbols` for audits.
    """
    if codec is None:
        return kind(bits=bits, range=range)
    if bits is not None or range is not None:
        raise ConfigError("give either a codec or bits and range, not both")
    return codec
