"""Kirkman triple systems from finite fields (Ray-Chaudhuri and Wilson 1971): groups of 3, n = 3 mod 6."""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.classes import Classes, as_classes, empty
from securedfl.designs.constructions.fields import Field, Integers, field


def twice_plus_one(q: int) -> Classes:
    """Return a Kirkman triple system on 2q + 1 points, for a prime power q = 1 mod 6.

    Points are two copies of GF(q) and infinity. With q = 6t + 1 and a power m such that 2 g^m = g^t + 1, the
    base partition's differences are all different; adding each element of the field gives q partitions.
    """
    numbers = field(q)
    t = (q - 1) // 6
    m = int(numbers.log[_half(numbers, numbers.add(numbers.power[t], 1))])
    i = np.arange(t)
    j = np.concatenate([i, i + 2 * t, i + 4 * t])
    power = numbers.exponential
    mixed = np.stack([power(j), power(j + t), q + power(j + m)], axis=1)
    pure = q + np.stack([power(i + m + t), power(i + m + 3 * t), power(i + m + 5 * t)], axis=1)
    base = np.concatenate([[[2 * q, 0, q]], mixed, pure])
    return develop(numbers, base, 2)


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
    alone = develop(numbers, even, 3).transpose(1, 0, 2)
    return as_classes(np.concatenate([develop(numbers, base, 3), alone]))


def develop(numbers: Field, base: Integers, levels: int) -> Classes:
    """Return the q translates of a base partition of ``levels`` copies of GF(q) and perhaps infinite points."""
    q = numbers.q
    finite = base < levels * q
    level, place = base // q * q, (base % q)[None]
    result = empty(q, *base.shape)
    # In slices: field arithmetic needs several times the memory of its result.
    step = max(1, 1_000_000 // base.size)
    for first in range(0, q, step):
        element = np.arange(first, min(first + step, q))[:, None, None]
        result[first : first + step] = np.where(finite, level + numbers.add(place, element), base)
    return result


def _half(numbers: Field, value: Integers) -> Integers:
    two = numbers.add(1, 1)
    return numbers.exponential(numbers.log[value] - numbers.log[two])
