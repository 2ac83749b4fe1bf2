"""Exact linear algebra for the audit: vectors over a prime field or over Z_2^64, and row reduction.

Never a float tolerance. One ring for each arithmetic of the protocols:

- `PrimeField`, for protocols over a field: the protocol's own, so nothing is left to chance. And for protocols over
  the real numbers, with a prime of 50 bits. The rank of a rational matrix modulo a prime p is its rank over
  the rationals unless p divides one particular minor. p is drawn from the 1.6e13 primes between 2^49 and 2^50, so a
  minor of B bits, which has at most B/49 such divisors, deceives with probability at most B/49/1.6e13: below 1e-9
  for every minor up to 700,000 bits. (The draw is a hash of what is audited, so the same question has the same
  answer.)
- `TwoAdic`, for shares over Z_2^b. No error probability: the reduction is done in the ring itself, modulo 2^64.
  While all pivots are odd, hence units in every Z_2^b, the answer holds for every b up to 64 alike. A pivot that
  is even (no protocol here has one) can reveal some bits of a value; the audit then errs on the side of telling:
  it counts the whole value as revealed.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.errors import PrivacyError

Vector = npt.NDArray[Any]
Matrix = npt.NDArray[Any]

_BITS = 50
"""Of the prime for the real numbers; below 2^51 the quotient in `PrimeField.multiply` is off by at most one."""

MERSENNE = 2**61 - 1


class Coefficients(ABC):
    """What linear forms have as coefficients: numbers in numpy arrays, with which their own operators calculate."""

    dtype: Any

    @abstractmethod
    def element(self, value: Fraction) -> Any:
        """Return the coefficient for a rational number."""

    def add(self, a: Vector, b: Vector) -> Vector:
        """Return a + b."""
        return np.asarray(a + b)

    def subtract(self, a: Vector, b: Vector) -> Vector:
        """Return a - b."""
        return np.asarray(a - b)

    def multiply(self, a: Vector, b: Vector) -> Vector:
        """Return a * b, element by element with broadcasting."""
        return np.asarray(a * b)

    def scaled(self, a: Vector, factor: Any) -> Vector:
        """Return a vector times one element."""
        return self.multiply(a, np.full(1, factor, dtype=self.dtype))


class Ring(Coefficients):
    """The integers modulo a number: what row reduction is exact in."""

    modulus: int
    name: str

    def element(self, value: Fraction) -> int:
        """Return the residue of a rational number."""
        if math.gcd(value.denominator, self.modulus) > 1:
            why = "even" if self.modulus % 2 == 0 else "a multiple of it"
            raise PrivacyError(f"{value} has no residue modulo {self.modulus}: its denominator is {why}")
        return value.numerator * self.inverse(value.denominator) % self.modulus

    def inverse(self, unit: int) -> int:
        """Return what gives one, times the unit."""
        return pow(unit, -1, self.modulus)

    @abstractmethod
    def pivot(self, entries: Vector) -> tuple[int, int]:
        """Return the first entry, of some that are not all zero, that divides the others; and its part without a unit.

        That part is one in a field, where every entry but zero is a unit.
        """


class PrimeField(Ring):
    """The integers modulo a prime of at most 50 bits, or 2^61 - 1, in int64."""

    dtype = np.int64

    def __init__(self, prime: int) -> None:
        self.modulus = prime
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

    def add(self, a: Vector, b: Vector) -> Vector:
        """Return a + b."""
        total = a + b
        total -= self.modulus * (total >= self.modulus)
        return total

    def subtract(self, a: Vector, b: Vector) -> Vector:
        """Return a - b."""
        difference = a - b
        difference += self.modulus * (difference < 0)
        return difference

    def multiply(self, a: Vector, b: Vector) -> Vector:
        """Return a * b: the quotient by p is estimated in float64, the remainder is exact modulo 2^64."""
        if self.modulus == MERSENNE:
            return _multiply_mersenne(a, b)
        quotient = (a.astype(np.float64) * b.astype(np.float64) * (1.0 / self.modulus)).astype(np.int64)
        remainder = a * b - quotient * self.modulus  # wraps, and so is exact: it lies between -p and 2p
        remainder += self.modulus * (remainder < 0)
        remainder -= self.modulus * (remainder >= self.modulus)
        return remainder

    def pivot(self, entries: Vector) -> tuple[int, int]:
        """Return the first entry that is not zero."""
        return int(np.flatnonzero(entries)[0]), 1


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


class TwoAdic(Ring):
    """The integers modulo 2^64, in uint64."""

    dtype = np.uint64
    name = "integers modulo 2^64"
    modulus = 1 << 64

    def pivot(self, entries: Vector) -> tuple[int, int]:
        """Return the first entry with the fewest factors of two, and those."""
        places = np.flatnonzero(entries)
        powers = entries[places] & (~entries[places] + np.uint64(1))  # the lowest set bit
        fewest = int(np.argmin(powers))
        return int(places[fewest]), int(powers[fewest])


def eliminate(rows: Matrix, columns: int, ring: Ring) -> Matrix:
    """Return generators of what the rows can say without the first ``columns`` columns (those cut off)."""
    rest = rows
    for column in range(columns):
        if not rest[:, column].any():
            continue
        row, power = ring.pivot(rest[:, column])
        pivot = ring.scaled(rest[row], ring.inverse(int(rest[row, column]) // power))
        rest = np.delete(rest, row, axis=0)
        if power > 1:  # an even pivot: a multiple of the row loses the column but may keep something else
            rest = np.vstack([rest, ring.scaled(pivot, ring.modulus // power)])
        touched = np.flatnonzero(rest[:, column])
        if touched.size:
            factors = rest[touched, column] // pivot[column]
            rest[touched] = ring.subtract(rest[touched], ring.multiply(factors[:, None], pivot[None, :]))
    return _nonzero(rest)[:, columns:]


def reduce(rows: Matrix, ring: Ring, width: int | None = None) -> Matrix:
    """Return a basis of the row space in which each row has a one where all the others have zeros.

    A unit vector lies in the row space exactly if it is a row of the result. A row over Z_2^64 whose entries are
    all even is divided by two, which can only add to the row space. Columns from ``width`` on are carried along.
    """
    rest = _nonzero(rows, width)
    done, lost = 0, 0
    while done < len(rest):
        column, power = ring.pivot(rest[done, :width])
        if power > 1:
            rest[done] //= rest.dtype.type(power)
            # a multiple of 2^32 or more says something about the last bits only: it counts as a full leak, and takes
            # no precision from the others
            lost += power.bit_length() - 1 if power < 1 << 32 else 0
        rest[done] = ring.scaled(rest[done], ring.inverse(int(rest[done, column])))
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


def _nonzero(rows: Matrix, width: int | None = None) -> Matrix:
    """Return the rows that are not all zero (in the first ``width`` columns), as a new array."""
    kept: Matrix = rows[rows[:, :width].any(axis=1)]
    return kept
