"""Abelian groups Z_a x Z_b x ...: elements are numbered like the digits of a number with these bases."""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.classes import Classes


def add(group: tuple[int, ...], a: Classes, b: Classes) -> Classes:
    """Return the sum of elements of the group, digit by digit."""
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape), dtype=np.int64)
    place = 1
    for modulus in reversed(group):
        total += (a // place + b // place) % modulus * place
        place *= modulus
    return total
