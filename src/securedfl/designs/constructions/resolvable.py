"""Resolvable block designs that meet every pair exactly once: n = (s-1) r + 1 peers in r partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

from securedfl.designs.constructions import pairwise_balanced
from securedfl.designs.constructions.arithmetic import divisors, prime_power
from securedfl.designs.constructions.base_blocks import shipped
from securedfl.designs.constructions.construction import Classes, Construction
from securedfl.designs.constructions.field_designs import (
    affine_geometry,
    thrice,
    thrice_plus_one,
    twice_plus_one,
)
from securedfl.designs.constructions.pairwise_balanced import Blocks
from securedfl.designs.constructions.transversal import row_limit


@cache
def resolvable(r: int, s: int) -> Construction | None:
    """Return the construction of r partitions of (s-1) r + 1 peers, or None if nothing here reaches it."""
    if r < s + 1 or (r - 1) % s:
        return None
    return _direct(r, s) or _closure(r, s)


def _direct(r: int, s: int) -> Construction | None:
    n = (s - 1) * r + 1
    if s > 2 and (power := _power_of(n, s)):
        return Construction(r, f"affine geometry AG({power},{s}) (Bose 1939)", partial(affine_geometry, power, s))
    if s == 3 and prime_power(r) and r % 6 == 1:
        method = "Kirkman triple system 2q+1 (Ray-Chaudhuri, Wilson 1971)"
        return Construction(r, method, partial(twice_plus_one, r))
    if s == 3 and n % 3 == 0 and prime_power(n // 3) and n // 3 % 6 == 1:
        method = "Kirkman triple system 3q (Ray-Chaudhuri, Wilson 1971)"
        return Construction(r, method, partial(thrice, n // 3))
    if s == 4 and prime_power(r) and r % 4 == 1:
        return Construction(r, "resolvable quadruples 3q+1 (Bose 1939)", partial(thrice_plus_one, r))
    return shipped("rotational").get((n, s))


def _closure(r: int, s: int) -> Construction | None:
    """Find a pairwise balanced design on r points all of whose block sizes have a construction."""
    for name, sizes, build in _balanced(r, s):
        if all(resolvable(k, s) for k in sizes):
            method = f"closure over {name} (Ray-Chaudhuri, Wilson 1971)"
            small = partial(block_design, s=s)
            return Construction(r, method, partial(pairwise_balanced.close, r, s, build, small))
    return None


def _balanced(r: int, s: int) -> Iterator[tuple[str, set[int], Callable[[], list[Blocks]]]]:
    """Propose pairwise balanced designs on r points: their name, block sizes, and how to build them."""
    if (r - 1) % s == 0 and resolvable(u := (r - 1) // s, s):
        yield (
            f"a completed design of {u} partitions",
            {s + 1, u},
            lambda: pairwise_balanced.completed(block_design(u, s)),
        )
    for k in divisors(r):
        if k % s == 1 and 1 < k <= row_limit(r // k) + 1:
            m = r // k
            yield f"TD({k},{m})", {k, m}, partial(pairwise_balanced.with_rows, k, m, extra=False)
    for k in divisors(r - 1):
        m = (r - 1) // k
        if k % s == 1 and 1 < k <= row_limit(m) + 1:
            yield (
                f"TD({k},{m}) and a point",
                {k, m + 1},
                partial(pairwise_balanced.with_rows, k, m, extra=True),
            )
    if (r, s) == (34, 3):
        yield "34 points in blocks of 4 and 7", {4, 7}, pairwise_balanced.thirty_four
    yield from _truncated(r, s)
    for m in divisors(r - 1):
        v = (r - 1) // m + 1
        if v % (s * (s + 1)) == s + 1 and row_limit(m) >= s and resolvable((v - 1) // s, s + 1):
            build = partial(_inflated, (v - 1) // s, s + 1, m)
            yield f"a design of {v} points, {m}-fold", {s + 1, s * m + 1}, build


def _inflated(r: int, s: int, m: int) -> list[Blocks]:
    return pairwise_balanced.inflated(block_design(r, s), m)


def _truncated(r: int, s: int) -> Iterator[tuple[str, set[int], Callable[[], list[Blocks]]]]:
    if not (prime_power(s) and prime_power(s + 1)):
        return
    total = (r - 1) // s
    for m in range(-(-total // (s + 2)), total // (s + 1) + 1):
        t = total - (s + 1) * m
        if row_limit(m) >= s + 1:
            sizes = {s + 1, s * m + 1} | ({s * t + 1} if t else set())
            yield f"TD({s + 2},{m}) truncated to {t}", sizes, partial(pairwise_balanced.truncated, s, m, t)


def block_design(r: int, s: int) -> Classes:
    """Build the design of `resolvable`."""
    found = resolvable(r, s)
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
