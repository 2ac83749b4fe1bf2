"""Products: a small design whose points are blown up, with designs of the same kind inside the pieces."""

from __future__ import annotations

import numpy as np

from securedfl.designs.constructions.classes import Classes, Plan, as_classes, copies
from securedfl.designs.constructions.transversal import row_limit, transversal


def weighted(u: int, v: int, s: int, base: Plan, inside: Plan) -> Plan | None:
    """Plan a design on u v points from one on u points and one on s v points.

    Every point becomes v points. The groups of the first partition become pieces of s v points for the inner
    design; each other group becomes a transversal design, so each other partition becomes v partitions.
    """
    if row_limit(v) < s:
        return None

    def build() -> Classes:
        classes = base.build().astype(np.int32)
        fine = transversal(s, v)
        row, place = np.divmod(fine, v)
        parts = [(partition[:, row] * v + place).transpose(1, 0, 2, 3) for partition in classes[1:]]
        across = [part.reshape(v, -1, s) for part in parts]
        pieces = (classes[0][:, :, None] * v + np.arange(v)).reshape(u // s, s * v)
        return as_classes(np.concatenate([*across, copies(inside.build(), pieces)]))

    gap = (base.gap - 1) * v + inside.gap
    return Plan(gap, f"{v}-fold [{base.method}], pieces of {s * v} filled by [{inside.method}]", build)
