"""Designs by formulas over finite fields: affine geometries, Kirkman triple systems, and their like for groups of 4."""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.arithmetic import Integers, field
from securedfl.designs.constructions.construction import Classes, as_classes, develop


def affine_geometry(m: int, q: int) -> Classes:
    """Return the (q^m - 1)/(q - 1) parallel classes of lines on q^m points.

    The space is GF(q^m); the multiples of GF(q) by powers of a primitive element are the lines through zero,
    and their translates the other lines.
    """
    space = field(q**m)
    directions = (q**m - 1) // (q - 1)
    subfield = np.concatenate([[0], space.power[::directions]])
    translates = np.arange(q**m)
    classes = []
    for i in range(directions):
        line = space.multiply(subfield, space.power[i])
        lines = space.add(translates[:, None], line[None, :])
        # Every line is met once from each of its points: keep it where the translate is its smallest.
        classes.append(lines[lines.min(axis=1) == translates])
    return as_classes(classes)


def twice_plus_one(q: int) -> Classes:
    """Return a Kirkman triple system on 2q + 1 points, for a prime power q = 1 mod 6.

    Points are two copies of GF(q) and infinity. With q = 6t + 1 and a power m such that 2 g^m = g^t + 1, the
    base partition's differences are all different; adding each element of the field gives q partitions.
    """
    numbers = field(q)
    t = (q - 1) // 6
    m = int(numbers.log[numbers.add(numbers.power[t], 1)] - numbers.log[numbers.add(1, 1)])
    i = np.arange(t)
    j = np.concatenate([i, i + 2 * t, i + 4 * t])
    power = numbers.exponential
    mixed = np.stack([power(j), power(j + t), q + power(j + m)], axis=1)
    pure = q + np.stack([power(i + m + t), power(i + m + 3 * t), power(i + m + 5 * t)], axis=1)
    base = np.concatenate([[[2 * q, 0, q]], mixed, pure])
    return develop(numbers.group, base, 2)


def thrice(q: int) -> Classes:
    """Return a Kirkman triple system on 3q points, for a prime power q = 1 mod 6.

    Points are three copies of GF(q). With q = 6t + 1, one base partition gives q partitions; a group with one
    point in each copy gives a partition by itself when translated, and 3t of those are left over.
    """
    numbers = field(q)
    t = (q - 1) // 6
    power = numbers.exponential
    i = np.arange(t)
    pure = np.stack([power(i), power(i + 2 * t), power(i + 4 * t)], axis=1)

    def across(k: Integers) -> Integers:
        return np.stack([power(k), q + power(k + 2 * t), 2 * q + power(k + 4 * t)], axis=1)

    zero = np.array([[0, q, 2 * q]])
    odd = across(np.concatenate([i + t, i + 3 * t, i + 5 * t]))
    base = np.concatenate([zero, pure, pure + q, pure + 2 * q, odd])
    even = across(np.concatenate([i, i + 2 * t, i + 4 * t]))
    alone = develop(numbers.group, even, 3).transpose(1, 0, 2)
    return as_classes(np.concatenate([develop(numbers.group, base, 3), alone]))


def thrice_plus_one(q: int) -> Classes:
    """Return q partitions of 3q + 1 points into groups of 4, for a prime power q = 1 mod 4.

    Points are three copies of GF(q) and infinity. A group holds x, -x of one copy and a x, -a x of the next, x
    running over half the squares. The sums and differences are all different if a is a nonsquare and
    (a + 1)(a - 1) is one too.
    """
    numbers, half = field(q), (q - 1) // 2
    # half way through the powers of a primitive element is -1
    minus_one = numbers.exponential(half)
    x = numbers.exponential(2 * np.arange(half // 2))
    minus = numbers.multiply(minus_one, x)
    candidates = numbers.exponential(2 * np.arange(half) + 1)
    test = numbers.multiply(numbers.add(candidates, 1), numbers.add(candidates, minus_one))
    a = candidates[(test != 0) & (numbers.log[test] % 2 == 1)][0]
    base = [np.array([[3 * q, 0, q, 2 * q]])]
    for copy in range(3):
        this, following = copy * q, (copy + 1) % 3 * q
        scaled = (numbers.multiply(a, x), numbers.multiply(a, minus))
        members = (this + x, this + minus, following + scaled[0], following + scaled[1])
        base.append(np.stack(members, axis=1))
    return develop(numbers.group, np.concatenate(base), 3)
