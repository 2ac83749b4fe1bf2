"""The learning rate of a round: schedules over the rounds of federated learning."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "cosine", "step"]


def factor(round: int, *, schedule: Schedule, decay: float, period: int | None, warmup: int) -> float:
    """Return by what the learning rate is multiplied in a round; the first round that trains is 1.

    Parameters
    ----------
    round
        Of federated learning.
    schedule
        ``constant``; ``step`` multiplies by ``decay`` after every ``period`` rounds; ``cosine`` falls to ``decay``
        over ``period`` rounds along half a wave, and stays there.
    decay, period
        Of the schedule.
    warmup
        The first so many rounds rise in equal steps: with 4, by 1/5, 2/5, 3/5 and 4/5.

    Examples
    --------
    >>> [factor(r, schedule="step", decay=0.1, period=2, warmup=0) for r in (1, 2, 3)]
    [1.0, 1.0, 0.1]
    """
    rising = min(1.0, round / (warmup + 1))
    if schedule == "constant" or period is None:
        return rising
    if schedule == "step":
        return float(rising * decay ** ((round - 1) // period))
    part = min(round - 1, period) / period
    return rising * (decay + (1 - decay) * (1 + math.cos(math.pi * part)) / 2)
