"""Resolvable block designs that meet every pair exactly once: n = (s-1) r + 1 peers in r partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from securedfl.designs import pairwise
from securedfl.designs.affine import affine_geometry
from securedfl.designs.bose import thrice_plus_one
from securedfl.designs.classes import Classes
from securedfl.designs.fields import divisors, prime_power
from securedfl.designs.kirkman import thrice, twice_plus_one
from securedfl.designs.pairwise import Blocks
from securedfl.designs.transversal import row_limit

CYCLIC = {
    34: ([[0, 1, 5], [0, 2, 10]], [[0, 3, 9, 20]]),
}
"""Base triples and quadruples over Z_{r-7} for orders that no recursion reaches; see `pairwise.cyclic`."""


@dataclass(frozen=True)
class Recipe:
    """How to build a resolvable block design."""

    method: str
    build: Callable[[], Classes]


@lru_cache(maxsize=None)
def recipe(r: int, s: int) -> Recipe | None:
    """Return how to build r partitions of (s-1) r + 1 peers, or None if no construction here reaches it."""
    if r < s + 1 or (r - 1) % s:
        return None
    return _direct(r, s) or _closure(r, s)


def _direct(r: int, s: int) -> Recipe | None:
    n = (s - 1) * r + 1
    if s > 2 and (power := _power_of(n, s)):
        return Recipe(f"affine geometry AG({power},{s}) (Bose 1939)", lambda: affine_geometry(power, s))
    if s == 3 and prime_power(r) and r % 6 == 1:
        return Recipe("Kirkman triple system 2q+1 (Ray-Chaudhuri, Wilson 1971)", lambda: twice_plus_one(r))
    if s == 3 and n % 3 == 0 and prime_power(n // 3) and n // 3 % 6 == 1:
        return Recipe("Kirkman triple system 3q (Ray-Chaudhuri, Wilson 1971)", lambda: thrice(n // 3))
    if s == 4 and prime_power(r) and r % 4 == 1:
        return Recipe("resolvable quadruples 3q+1 (Bose 1939)", lambda: thrice_plus_one(r))
    return None


def _closure(r: int, s: int) -> Recipe | None:
    """Find a pairwise balanced design on r points whose block sizes are all known here."""
    for name, build in _balanced(r, s):
        method = f"closure (Ray-Chaudhuri, Wilson 1971) over {name}"
        return Recipe(method, lambda build=build: pairwise.close(r, s, build(), lambda k: block_design(k, s)))
    return None


def _balanced(r: int, s: int) -> list[tuple[str, Callable[[], list[Blocks]]]]:
    known = lambda k: recipe(k, s) is not None  # noqa: E731
    if not known(s + 1):
        return []
    return []


def block_design(r: int, s: int) -> Classes:
    """Build the design of `recipe`."""
    found = recipe(r, s)
    if found is None:
        raise ValueError(f"no resolvable block design with {r} partitions of groups of {s}")
    return found.build()


def _power_of(n: int, s: int) -> int:
    """Return m with n = s^m for a prime power s, else 0."""
    m = 0
    while n % s == 0:
        n //= s
        m += 1
    return m if n == 1 and prime_power(s) else 0
