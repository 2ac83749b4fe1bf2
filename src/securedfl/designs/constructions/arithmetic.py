"""Finite fields GF(q) and abelian groups Z_a x Z_b x ..., with arithmetic on whole numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Field:
    """GF(q). Elements are 0..q-1: the digits in base p are the coefficients of a polynomial over GF(p).

    ``group`` is that of addition, ``power[i]`` the i-th power of a primitive element, and ``log`` the inverse of that
    (``log[0]`` is unused).
    """

    q: int
    group: tuple[int, ...]
    power: Integers
    log: Integers

    def add(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Integers:
        """Return a + b, element by element."""
        return add(self.group, np.asarray(a), np.asarray(b))

    def multiply(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Integers:
        """Return a b, element by element."""
        x, y = np.broadcast_arrays(np.asarray(a), np.asarray(b))
        result = self.power[(self.log[x] + self.log[y]) % (self.q - 1)]
        return np.asarray(np.where((x == 0) | (y == 0), 0, result))

    def exponential(self, i: npt.ArrayLike) -> Integers:
        """Return the i-th power of the primitive element, for any integer i."""
        return np.asarray(self.power[np.asarray(i) % (self.q - 1)])


@lru_cache(maxsize=64)
def field(q: int) -> Field:
    """Return GF(q) for a prime power q."""
    p, degree = prime_power(q) or (0, 0)
    if not p:
        raise ValueError(f"{q} is not a prime power")
    power = _powers(p, degree)
    log = np.zeros(q, dtype=np.int64)
    log[power] = np.arange(q - 1)
    return Field(q, (p,) * degree, power, log)


def _powers(p: int, degree: int) -> Integers:
    """Powers of a primitive element, found by trying: x in GF(p)[x] / (polynomial)."""
    # without a constant term x divides the polynomial and is never primitive; of degree one, x is a number: 1, 2, ...
    tails = product(range(1, p), *[range(p)] * (degree - 1)) if degree > 1 else ((p - root,) for root in range(1, p))
    for tail in tails:
        # x is primitive modulo x^degree + tail exactly if its powers visit every nonzero element.
        one = element = [1] + [0] * (degree - 1)
        numbers: list[int] = []
        while not numbers or element != one:
            numbers.append(sum(c * p**i for i, c in enumerate(element)))
            carry = element[-1]
            element = [(c - carry * t) % p for c, t in zip([0, *element[:-1]], tail, strict=True)]
        if len(numbers) == p**degree - 1:
            return np.array(numbers, dtype=np.int64)
    raise AssertionError("every finite field has a primitive element")


@cache
def factors(v: int) -> tuple[tuple[int, int], ...]:
    """Return the prime factorisation as (prime, exponent) pairs, ascending."""
    found, p = [], 2
    while p * p <= v:
        exponent = 0
        while v % p == 0:
            v //= p
            exponent += 1
        if exponent:
            found.append((p, exponent))
        p += 1
    if v > 1:
        found.append((v, 1))
    return tuple(found)


def prime_power(q: int) -> tuple[int, int] | None:
    """Return (p, k) with q = p^k, or None."""
    if q < 2:
        return None
    parts = factors(q)
    return parts[0] if len(parts) == 1 else None


def divisors(v: int) -> list[int]:
    """Return all divisors, ascending."""
    result = [1]
    for p, exponent in factors(v):
        result = [d * p**i for d in result for i in range(exponent + 1)]
    return sorted(result)


def add(group: tuple[int, ...], a: Numbers, b: Numbers) -> Integers:
    """Return the sum of elements of the abelian group, numbered like the digits of a number with these bases."""
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape), dtype=np.int64)
    place = 1
    for modulus in reversed(group):
        total += (a // place + b // place) % modulus * place
        place *= modulus
    return total
