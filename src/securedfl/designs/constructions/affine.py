"""Affine geometry AG(m, q): the lines of a space over GF(q), parallel lines forming a partition (Bose 1939)."""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.classes import Classes, as_classes
from securedfl.designs.constructions.fields import field


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
