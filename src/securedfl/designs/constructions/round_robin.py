"""Round robin: all pairs of peers in as few partitions as possible (Kirkman 1847; the circle method)."""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.classes import Classes, as_classes


def round_robin(n: int) -> Classes:
    """Return the n - 1 partitions of an even number of peers into pairs.

    One peer stays, the others sit on a circle; each turn of the circle pairs those opposite each other.
    """
    circle = n - 1
    turn = np.arange(circle)[:, None]
    step = np.arange(1, n // 2)[None, :]
    opposite = np.stack([(turn + step) % circle, (turn - step) % circle], axis=2)
    centre = np.stack([np.full((circle, 1), circle), turn], axis=2)
    return as_classes(np.concatenate([centre, opposite], axis=1))
