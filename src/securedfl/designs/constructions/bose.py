"""Resolvable designs with groups of 4 from finite fields: n = 3q + 1 (Bose 1939)."""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.classes import Classes
from securedfl.designs.constructions.fields import field
from securedfl.designs.constructions.kirkman import develop


def thrice_plus_one(q: int) -> Classes:
    """Return q partitions of 3q + 1 points into groups of 4, for a prime power q = 1 mod 4.

    Points are three copies of GF(q) and infinity. A group holds x, -x of one copy and a x, -a x of the next, x
    running over half the squares. The sums and differences are all different if a is a nonsquare and
    (a + 1)(a - 1) is one too.
    """
    numbers = field(q)
    quarter = (q - 1) // 4
    x = numbers.exponential(2 * np.arange(quarter))
    minus = numbers.negative(x)
    candidates = numbers.exponential(2 * np.arange((q - 1) // 2) + 1)
    test = numbers.multiply(numbers.add(candidates, 1), numbers.add(candidates, numbers.negative(1)))
    a = candidates[(test != 0) & (numbers.log[test] % 2 == 1)][0]
    base = [np.array([[3 * q, 0, q, 2 * q]])]
    for copy in range(3):
        this, following = copy * q, (copy + 1) % 3 * q
        scaled = (numbers.multiply(a, x), numbers.multiply(a, minus))
        members = (this + x, this + minus, following + scaled[0], following + scaled[1])
        base.append(np.stack(members, axis=1))
    return develop(numbers, np.concatenate(base), 3)
