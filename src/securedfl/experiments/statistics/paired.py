"""Two models on the same test samples: McNemar's exact test, and intervals over seeds and users. Numpy only.

An interval is as wide as the wider of two. A bootstrap knows that samples of one user resemble each other, but where
two models hardly ever differ it has nothing to draw: with no difference among 700 samples it would be sure that there
is none among all. Bonett and Price's adjusted interval for paired shares knows that, and takes samples as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from securedfl.parameters import Array

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
REPLICATES = 4_000
"""Bootstrap samples: enough for the second digit of an interval's ends."""

NORMAL = 1.959963984540054
"""How many standard errors an interval of that confidence reaches."""

SEED = 2012_07183
"""Of the bootstrap, so that the same runs give the same bytes."""


@dataclass(frozen=True)
class Pair:
    """Two models of one training, on the same test samples.

    Attributes
    ----------
    gained, count
        By user: how many more predictions the first model got right than the second, and how many there are.
    samples
        How many test samples there are; each may ask for several predictions.
    only_first, only_second
        How many predictions one model got right and the other did not.
    """

    gained: Array
    count: Array
    samples: int
    only_first: int
    only_second: int

    @classmethod
    def of(cls, first: Array, second: Array, users: Array) -> Self:
        """Compare two models, by whether each prediction was right; ``users`` tells whom each sample is from.

        A sample may ask for several predictions, which then follow each other.
        """
        if len(first) != len(second) or not len(users) or len(first) % len(users):
            raise ValueError("models are compared on the same test samples")
        _, user = np.unique(users, return_inverse=True)
        by_sample = (first.astype(np.int64) - second.astype(np.int64)).reshape(len(users), -1)
        gained = np.bincount(user, by_sample.sum(axis=1))
        count = np.bincount(user) * by_sample.shape[1]
        return cls(gained, count, len(users), int((first & ~second).sum()), int((second & ~first).sum()))

    @property
    def difference(self) -> float:
        """By how much more of all predictions the first model got right."""
        return float(self.gained.sum() / self.count.sum())


@dataclass(frozen=True)
class Difference:
    """How much more accurate one method is than another, in percentage points.

    Attributes
    ----------
    points, low, high
        The mean over seeds, and the ends of its interval at 95 %.
    seeds, users, predictions
        What it is over: users and predictions are summed over the seeds.
    only_first, only_second, p
        Predictions that one got right and the other did not, over all seeds, and McNemar's exact p; None where the two
        were not scored on the same samples. It takes predictions as independent of each other, which those of one user
        are not: the interval does not.
    """

    points: float
    low: float
    high: float
    seeds: int
    users: int
    predictions: int
    only_first: int | None = None
    only_second: int | None = None
    p: float | None = None

    @property
    def half(self) -> float:
        """The longer arm of the interval."""
        return max(self.high - self.points, self.points - self.low)


def compare(pairs: Sequence[Pair]) -> Difference:
    """Return the difference between two methods, from one pair of models for each seed."""
    differences = np.array([pair.difference for pair in pairs])
    random = np.random.default_rng(SEED)
    noise = [_noise(pair.gained, pair.count, random) for pair in pairs]
    first, second = (sum(getattr(pair, side) for pair in pairs) for side in ("only_first", "only_second"))
    found = _summed(
        differences,
        noise,
        random,
        users=sum(len(pair.count) for pair in pairs),
        predictions=int(sum(pair.count.sum() for pair in pairs)),
        only_first=first,
        only_second=second,
        p=mcnemar(first, second),
    )
    samples = sum(pair.samples for pair in pairs)
    low, high = bonett_price(first, second, found.predictions, samples)
    return replace(found, low=min(found.low, 100 * low), high=max(found.high, 100 * high))


@dataclass(frozen=True)
class Scored:
    """One model on its test samples, by user: how many predictions were right, and how many there are."""

    right: Array
    count: Array

    @classmethod
    def of(cls, right: Array, users: Array) -> Self:
        """Count by user; ``users`` tells whom each sample is from."""
        _, user = np.unique(users, return_inverse=True)
        by_sample = right.astype(np.int64).reshape(len(users), -1)
        return cls(np.bincount(user, by_sample.sum(axis=1)), np.bincount(user) * by_sample.shape[1])


def contrast(first: Sequence[Scored], second: Sequence[Scored]) -> Difference:
    """Return the difference between two methods on different test samples, from models with the same seeds."""
    random = np.random.default_rng(SEED)
    differences, noise = [], []
    for one, other in zip(first, second, strict=True):
        differences.append(one.right.sum() / one.count.sum() - other.right.sum() / other.count.sum())
        noise.append(_noise(one.right, one.count, random) - _noise(other.right, other.count, random))
    every = [*first, *second]
    return _summed(
        np.array(differences),
        noise,
        random,
        users=sum(len(one.count) for one in every),
        predictions=int(sum(one.count.sum() for one in every)),
    )


def bonett_price(only_first: int, only_second: int, predictions: int, samples: int) -> tuple[float, float]:
    """Return the ends of the adjusted Wald interval of a difference between paired shares (Bonett and Price, 2012).

    Several predictions of one sample count as one sample's worth, because they resemble each other.
    """
    each = predictions / samples
    first, second = ((count / each + 1) / (samples + 2) for count in (only_first, only_second))
    error = math.sqrt((first + second - (first - second) ** 2) / (samples + 2))
    return first - second - NORMAL * error, first - second + NORMAL * error


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the p-value of McNemar's exact test: how likely so uneven a split is if both sides were as likely."""
    n, fewer = only_first + only_second, min(only_first, only_second)
    if n == 0:
        return 1.0
    logs = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(fewer + 1)]
    tail = math.fsum(math.exp(log - n * math.log(2)) for log in logs)
    return min(1.0, 2 * tail)


def _noise(right: Array, count: Array, random: np.random.Generator) -> Floats:
    """Draw users again and again, and return how far the share then is from the one of all users.

    Users that are alike are drawn together, as a multinomial, which is the same and takes no time.
    """
    wide = int(count.max()) + 1
    kinds, times = np.unique(right.astype(np.int64) * wide + count, return_counts=True)
    drawn = random.multinomial(len(count), times / len(count), size=REPLICATES)
    shares: Floats = (drawn @ (kinds // wide)) / (drawn @ (kinds % wide)) - right.sum() / count.sum()
    return shares


def _summed(
    differences: Floats,
    noise: Sequence[Floats],
    random: np.random.Generator,
    *,
    users: int,
    predictions: int,
    only_first: int | None = None,
    only_second: int | None = None,
    p: float | None = None,
) -> Difference:
    """Draw seeds, and users within each; few seeds are drawn wider, as their own spread is too small by (s - 1) / s."""
    seeds = len(differences)
    mean = float(differences.mean())
    drawn = random.integers(seeds, size=(REPLICATES, seeds))
    within = np.stack(noise)[drawn, np.arange(REPLICATES)[:, None]].mean(axis=1)
    wider = math.sqrt(seeds / (seeds - 1)) if seeds > 1 else 0.0
    between = wider * (differences[drawn].mean(axis=1) - mean)
    low, high = np.quantile(mean + between + within, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Difference(
        points=100 * mean,
        low=100 * float(low),
        high=100 * float(high),
        seeds=seeds,
        users=users,
        predictions=predictions,
        only_first=only_first,
        only_second=only_second,
        p=p,
    )
