"""Exact linear algebra for the audit: vectors over a prime field or over Z_2^64, and row reduction.

Never a float tolerance. One arithmetic for each of the protocols':

- `PrimeField`, for protocols over a field: the protocol's own, so nothing is left to chance. And for protocols over
  the real numbers, with a prime of 50 bits. The rank of a rational matrix modulo a prime p is its rank over
  the rationals unless p divides one particular minor. p is drawn from the 1.6e13 primes between 2^49 and 2^50, so a
  minor of B bits, which has at most B/49 such divisors, deceives with probability at most B/49/1.6e13: below 1e-9
  for every minor up to 700,000 bits. (The draw is a hash of what is audited, so the same question has the same
  answer.)
- `TwoAdic`, for shares over Z_2^b. No error probability: the reduction is done in the ring itself, modulo 2^64.
  While all pivots are odd, hence units in every Z_2^b, the answer holds for b = 32 and b = 64 alike. A pivot that
  is even (no protocol here has one) can reveal some bits of a value; the audit then errs on the side of telling:
  it counts the whole value as revealed.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from securedfl.errors import PrivacyError
from securedfl.protocols.field import Native

Vector = npt.NDArray[Any]
Matrix = npt.NDArray[Any]

_BITS = 50
"""Of the prime for the real numbers; below 2^51 the quotient in `PrimeField.multiply` is off by at most one."""

MERSENNE = 2**61 - 1


class Arithmetic(Protocol):
    """What row reduction and symbolic execution need of a ring; elements are integers in numpy arrays."""

    dtype: Any
    name: str

    def element(self, value: Fraction) -> int:
        """Return the ring's element for a rational number."""

    def add(self, a: Vector, b: Vector) -> Vector:
        """Return a + b."""

    def subtract(self, a: Vector, b: Vector) -> Vector:
        """Return a - b."""

    def multiply(self, a: Vector, b: Vector) -> Vector:
        """Return a * b, element by element with broadcasting."""

    def pivot(self, column: Vector) -> tuple[int, int, int] | None:
        """Return (row, factor that makes its entry the pivot, factor that kills the pivot), or None."""

    def lead(self, row: Vector, width: int | None = None) -> tuple[int, Vector]:
        """Return the column of a unit of the row, and the row divided by that unit."""


class PrimeField:
    """The integers modulo a prime of at most 50 bits, or 2^61 - 1, in int64."""

    dtype = np.int64

    def __init__(self, prime: int) -> None:
        self.prime = prime
        self.name = f"prime field, p = {prime}"

    @classmethod
    def chosen_by(cls, text: str) -> PrimeField:
        """Return the field of a prime that hashes of the text pick, each prime of 50 bits with equal chance."""
        candidate, attempt = 0, 0
        while not is_prime(candidate):
            digest = hashlib.sha256(f"securedfl audit {attempt} {text}".encode()).digest()
            candidate = (1 << (_BITS - 1)) | int.from_bytes(digest[:8], "big") >> (64 - _BITS + 1)
            attempt += 1
        return cls(candidate)

    def element(self, value: Fraction) -> int:
        """Return the residue of a rational number."""
        if value.denominator % self.prime == 0:
            raise PrivacyError(f"{value} has no residue modulo {self.prime}; audit with another prime")
        return value.numerator * pow(value.denominator, -1, self.prime) % self.prime

    def add(self, a: Vector, b: Vector) -> Vector:
        """Return a + b."""
        total = a + b
        total -= self.prime * (total >= self.prime)
        return total

    def subtract(self, a: Vector, b: Vector) -> Vector:
        """Return a - b."""
        difference = a - b
        difference += self.prime * (difference < 0)
        return difference

    def multiply(self, a: Vector, b: Vector) -> Vector:
        """Return a * b: the quotient by p is estimated in float64, the remainder is exact modulo 2^64."""
        if self.prime == MERSENNE:
            return _multiply_mersenne(a, b)
        quotient = (a.astype(np.float64) * b.astype(np.float64) * (1.0 / self.prime)).astype(np.int64)
        remainder = a * b - quotient * self.prime  # wraps, and so is exact: it lies between -p and 2p
        remainder += self.prime * (remainder < 0)
        remainder -= self.prime * (remainder >= self.prime)
        return remainder

    def pivot(self, column: Vector) -> tuple[int, int, int] | None:
        """Return the first entry that is not zero; every one is a unit."""
        rows = np.flatnonzero(column)
        if not rows.size:
            return None
        return int(rows[0]), pow(int(column[rows[0]]), -1, self.prime), 0

    def lead(self, row: Vector, width: int | None = None) -> tuple[int, Vector]:
        """Return the first column that is not zero, and the row with a one there."""
        column = int(np.flatnonzero(row[:width])[0])
        inverse = pow(int(row[column]), -1, self.prime)
        return column, self.multiply(row, np.full(1, inverse, dtype=self.dtype))


def _multiply_mersenne(a: Vector, b: Vector) -> Vector:
    """Return a * b modulo 2^61 - 1, in halves of 31 bits: 2^61 is 1, and no intermediate sum reaches 2^63."""
    half, rest = np.int64(31), np.int64(2**31 - 1)
    a1, a0, b1, b0 = a >> half, a & rest, b >> half, b & rest
    middle, low = a1 * b0 + a0 * b1, a0 * b0
    total = 2 * (a1 * b1) + (middle >> 30) + ((middle & (2**30 - 1)) << half)
    total = (total & MERSENNE) + (total >> 61) + (low & MERSENNE) + (low >> 61)
    total = (total & MERSENNE) + (total >> 61)
    total -= MERSENNE * (total >= MERSENNE)
    return np.asarray(total)


class TwoAdic(Native):
    """The integers modulo 2^64, in uint64."""

    dtype = np.uint64
    name = "integers modulo 2^64"

    def element(self, value: Fraction) -> int:
        """Return the ring's element for a fraction with an odd denominator."""
        if value.denominator % 2 == 0:
            raise PrivacyError(f"{value} does not exist in Z_2^b: its denominator is even")
        return value.numerator * pow(value.denominator, -1, 1 << 64) % (1 << 64)

    def pivot(self, column: Vector) -> tuple[int, int, int] | None:
        """Return the entry with the fewest factors of two, which divides all the others."""
        rows = np.flatnonzero(column)
        if not rows.size:
            return None
        powers = column[rows] & (~column[rows] + np.uint64(1))  # the lowest set bit
        row = int(rows[np.argmin(powers)])
        power = int(powers.min())
        return row, pow(int(column[row]) // power, -1, 1 << 64), ((1 << 64) // power if power > 1 else 0)

    def lead(self, row: Vector, width: int | None = None) -> tuple[int, Vector]:
        """Return the first odd column, after division by the power of two that all entries share."""
        entries = row[:width][row[:width] != 0]
        odd = row // (entries & (~entries + np.uint64(1))).min()
        column = int(np.flatnonzero(odd[:width] & np.uint64(1))[0])
        inverse = pow(int(odd[column]), -1, 1 << 64)
        return column, self.multiply(odd, np.full(1, inverse, dtype=self.dtype))


def eliminate(rows: Matrix, columns: int, ring: Arithmetic) -> Matrix:
    """Return generators of what the rows can say without the first ``columns`` columns (those cut off)."""
    rest = rows
    for column in range(columns):
        found = ring.pivot(rest[:, column])
        if found is None:
            continue
        row, unit, killer = found
        pivot = ring.multiply(rest[row], np.full(1, unit, dtype=ring.dtype))
        rest = np.delete(rest, row, axis=0)
        if killer:  # an even pivot: a multiple of the row loses the column but may keep something else
            rest = np.vstack([rest, ring.multiply(pivot, np.full(1, killer, dtype=ring.dtype))])
        touched = np.flatnonzero(rest[:, column])
        if touched.size:
            factors = _divide(rest[touched, column], pivot[column])
            rest[touched] = ring.subtract(rest[touched], ring.multiply(factors[:, None], pivot[None, :]))
    return _nonzero(rest)[:, columns:]


def reduce(rows: Matrix, ring: Arithmetic, width: int | None = None) -> Matrix:
    """Return a basis of the row space in which each row has a one where all the others have zeros.

    A unit vector lies in the row space exactly if it is a row of the result. A row over Z_2^64 whose entries are
    all even is divided by two, which can only add to the row space. Columns from ``width`` on are carried along.
    """
    rest = _nonzero(rows, width)
    done, lost = 0, 0
    while done < len(rest):
        lost += _bits_lost(rest[done, :width], ring)
        column, rest[done] = ring.lead(rest[done], width)
        factors = rest[:, column].copy()
        factors[done] = 0
        touched = np.flatnonzero(factors)
        if touched.size:
            change = ring.multiply(factors[touched, None], rest[None, done])
            rest[touched] = ring.subtract(rest[touched], change)
        if lost:  # what was divided by two is known modulo 2^63 only, and so is all that it is subtracted from
            rest[:, :width] &= np.uint64((1 << (64 - lost)) - 1)
        done += 1
        rest = np.vstack([rest[:done], _nonzero(rest[done:], width)])
    return rest


def _bits_lost(row: Vector, ring: Arithmetic) -> int:
    """Return how many bits `lead` shifts out of a row of even integers.

    A row that is a multiple of 2^32 or more says something about the last bits only. It counts as a full leak, and
    takes no precision from the others.
    """
    if ring.dtype != np.uint64:
        return 0
    entries = row[row != 0]
    shift = int((entries & (~entries + np.uint64(1))).min()).bit_length() - 1
    return shift if shift < 32 else 0


def is_prime(number: int) -> bool:
    """Tell whether a number below 3.3e24 is prime: Miller-Rabin with bases that leave no exception there."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
    if number < 2 or any(number % base == 0 for base in bases):
        return number in bases
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        if not any((power := power * power % number) == number - 1 for _ in range(twos - 1)):
            return False
    return True


def _divide(entries: Vector, pivot: Any) -> Vector:
    """Return entries / pivot where the pivot is one or a power of two that divides them."""
    return entries.copy() if pivot == 1 else entries // pivot


def _nonzero(rows: Matrix, width: int | None = None) -> Matrix:
    """Return the rows that are not all zero (in the first ``width`` columns), as a new array."""
    kept: Matrix = rows[rows[:, :width].any(axis=1)]
    return kept
