"""How sure an accuracy is, and a difference between two: of shares, of models on the same test samples, over seeds.

One model: Wilson's interval. Two models of which only the shares are known: Newcombe's. Two models on the same test
samples: McNemar's exact test, and an interval as wide as the wider of two. A bootstrap knows that samples of one user
resemble each other, but where two models hardly ever differ it has nothing to draw: with no difference among 700
samples it would be sure that there is none among all. Bonett and Price's adjusted interval for paired shares knows
that; it takes predictions as independent, so it is told how many independent ones those at hand are worth.

Seeds that are tested on the same users do not tell of more users. So the bootstrap draws users once for all seeds, and
the closed form counts a prediction once, however many seeds were tested on it.
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
"""Bootstrap samples: with other ones an interval's arms differ by some per cent."""
AT_ONCE = 250
"""Of them in memory: each holds a number for every user."""

FEW = 30
"""Fewer predictions that differ do not tell whether those of one user or sample go together."""
CAUTIOUS = 10.0
"""As how many independent predictions' worth one is then taken at most where a sample asks for several."""

NORMAL = 1.959963984540054
"""How many standard errors an interval of that confidence reaches."""

_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
_COLUMNS = ("amount", "count")

SEED = 2012_07183
"""Of the bootstrap, so that the same runs give the same bytes."""


def wilson(share: float, samples: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of that many samples (Wilson 1927).

    For a mean over several models on the same samples it is, if anything, too wide: what a sample adds lies between 0
    and 1, and varies most where it is one of the two.
    """
    z = NORMAL * NORMAL / samples
    middle = (share + z / 2) / (1 + z)
    half = math.sqrt(z * (share * (1 - share) + z / 4)) / (1 + z)
    return max(0.0, middle - half), min(1.0, middle + half)


def newcombe(first: float, second: float, samples: int, others: int | None = None) -> tuple[float, float]:
    """Return the 95 % interval of a difference of two shares (Newcombe 1998, from two Wilson intervals).

    It takes them for independent, of so many samples and as many ``others``. Two models that were scored on the same
    samples mostly err on the same ones, which makes the true interval narrower: `compare` knows.
    """
    (low, high), (lower, higher) = wilson(first, samples), wilson(second, samples if others is None else others)
    between = first - second
    return (
        between - math.hypot(first - low, higher - second),
        between + math.hypot(high - first, second - lower),
    )


@dataclass(frozen=True)
class ByUser:
    """A share of test predictions, by user.

    Attributes
    ----------
    users
        The number of each, in the data set.
    amount, count
        How many predictions were right (of a difference: how many more), and how many there are.
    """

    users: Array
    amount: Array
    count: Array

    @classmethod
    def of(cls, amounts: Array, users: Array) -> Self:
        """Sum by user; ``users`` tells whom each sample is from. Several predictions of a sample follow each other."""
        every, user = np.unique(users, return_inverse=True)
        by_sample = amounts.astype(np.int64).reshape(len(users), -1)
        return cls(every, np.bincount(user, by_sample.sum(axis=1)), np.bincount(user) * by_sample.shape[1])

    @property
    def share(self) -> float:
        """Of all users together."""
        return float(self.amount.sum() / self.count.sum())


@dataclass(frozen=True)
class Pair:
    """Two models of one training, on the same test samples.

    Attributes
    ----------
    gained
        How many more predictions the first model got right than the second.
    samples
        The number of each test sample in the data set; each may ask for several predictions.
    only_first, only_second
        How many predictions one model got right and the other did not.
    """

    gained: ByUser
    samples: Array
    only_first: int
    only_second: int

    @classmethod
    def of(cls, first: Array, second: Array, users: Array, samples: Array | None = None) -> Self:
        """Compare two models, by whether each prediction was right.

        Parameters
        ----------
        first, second
            Whether each prediction was right; a sample may ask for several, which then follow each other.
        users, samples
            Whom each sample is from, and which it is. Without ``samples`` they are numbered in their order: seeds with
            the same users are then taken to have the same samples.
        """
        if len(first) != len(second) or not len(users) or len(first) % len(users):
            raise ValueError("models are compared on the same test samples")
        samples = np.arange(len(users)) if samples is None else samples
        gained = ByUser.of(first.astype(np.int64) - second.astype(np.int64), users)
        return cls(gained, samples, int((first & ~second).sum()), int((second & ~first).sum()))


@dataclass(frozen=True)
class Difference:
    """How much more accurate one method is than another, in percentage points.

    Attributes
    ----------
    points, low, high
        The mean over seeds, and the ends of its interval at 95 %.
    seeds, users, predictions
        What it is over: different users, and the predictions of all seeds.
    tested, deviation
        How long the longer arm would be if only the choice of test samples mattered, if that is known; and the standard
        deviation between seeds, None of one.
    only_first, only_second, p
        Predictions that one got right and the other did not, over all seeds, and McNemar's exact p; None where the two
        were not scored on the same samples. It takes predictions as independent of each other, which those of one user
        are not: the interval does not. Seeds that share test samples have no p, nor samples with several predictions.
    """

    points: float
    low: float
    high: float
    seeds: int
    users: int
    predictions: int
    tested: float | None = None
    deviation: float | None = None
    only_first: int | None = None
    only_second: int | None = None
    p: float | None = None

    @property
    def half(self) -> float:
        """The longer arm of the interval."""
        return max(self.high - self.points, self.points - self.low)

    @property
    def rare(self) -> bool:
        """Whether the models differ in so few predictions that the interval is that of rare events."""
        return self.only_first is not None and self.only_first + (self.only_second or 0) < FEW

    def widened(self, low: float, high: float) -> Difference:
        """Return it with an interval at least as wide as this one, which knows of test samples only."""
        tested = max(self.tested or 0.0, 100 * high - self.points, self.points - 100 * low)
        return replace(self, low=min(self.low, 100 * low), high=max(self.high, 100 * high), tested=tested)


def compare(pairs: Sequence[Pair]) -> Difference:
    """Return the difference between two methods, from one pair of models for each seed."""
    first, second = (sum(getattr(pair, side) for pair in pairs) for side in ("only_first", "only_second"))
    # numbers of samples mean the same in all seeds, unless only a part of the data is used: then they are too few
    distinct = len(np.unique(np.concatenate([pair.samples for pair in pairs])))
    gained = [pair.gained for pair in pairs]
    shares = np.array([one.share for one in gained])
    found = replace(_summed(shares, _noise(gained), gained), only_first=first, only_second=second)
    each = found.predictions / sum(len(pair.samples) for pair in pairs)
    if each == 1 and distinct == found.predictions:
        found = replace(found, p=mcnemar(first, second))
    if found.rare:
        worth = distinct * each / min(each, CAUTIOUS)
    else:
        worth = min(distinct * each, _independent(gained, first, second))
    return found.widened(*bonett_price(first, second, found.predictions, worth))


def contrast(first: Sequence[ByUser], second: Sequence[ByUser]) -> Difference:
    """Return the difference between two methods on different test samples of the same data, with the same seeds."""
    differences = np.array([one.share - other.share for one, other in zip(first, second, strict=True)])
    every = [*first, *second]
    noise = _noise(every)
    found = _summed(differences, noise[: len(first)] - noise[len(first) :], every)
    right, count = (np.array([getattr(one, what).sum() for one in every]) for what in ("amount", "count"))
    if min(right.min(), (count - right).min()) >= FEW:
        return found
    # of flawless models a bootstrap has nothing to draw
    shares = [float(np.mean([one.share for one in side])) for side in (first, second)]
    return found.widened(*newcombe(shares[0], shares[1], int(first[0].count.sum()), int(second[0].count.sum())))


def _independent(gained: Sequence[ByUser], only_first: int, only_second: int) -> float:
    """Return how many independent predictions would vary as much as these do, whose users are drawn as a whole."""
    users, user = np.unique(np.concatenate([one.users for one in gained]), return_inverse=True)
    amount, count = (np.bincount(user, np.concatenate([getattr(g, what) for g in gained])) for what in _COLUMNS)
    total, n = count.sum(), len(users)
    mean = amount.sum() / total
    varies = ((amount - mean * count) ** 2).sum() / total**2 * n / max(1, n - 1)
    alone = (only_first + only_second) / total - mean**2
    return float(alone / varies) if varies else math.inf


def bonett_price(only_first: int, only_second: int, predictions: int, worth: float) -> tuple[float, float]:
    """Return the ends of the adjusted Wald interval of a difference between paired shares (Bonett and Price, 2012).

    ``worth`` is of how many independent predictions these tell as much; they resemble each other.
    """
    each = predictions / worth
    first, second = ((count / each + 1) / (worth + 2) for count in (only_first, only_second))
    error = math.sqrt((first + second - (first - second) ** 2) / (worth + 2))
    return first - second - NORMAL * error, first - second + NORMAL * error


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the p-value of McNemar's exact test: how likely so uneven a split is if both sides were as likely."""
    n, fewer = only_first + only_second, min(only_first, only_second)
    if n == 0:
        return 1.0
    logs = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(fewer + 1)]
    tail = math.fsum(math.exp(log - n * math.log(2)) for log in logs)
    return min(1.0, 2 * tail)


def _noise(shares: Sequence[ByUser]) -> Floats:
    """Draw users again and again, the same for all shares, and return how far each share then is from that of all.

    Users that are alike are drawn together, as a multinomial, which is the same and takes less time. Of few users a
    bootstrap knows too little: its steps are made longer, as Student's distribution is wider than the normal one.
    """
    from scipy.special import stdtrit

    random = np.random.default_rng(SEED)
    every = np.unique(np.concatenate([one.users for one in shares]))
    table = np.zeros((len(every), 2, len(shares)), dtype=np.int64)
    for at, one in enumerate(shares):
        table[np.searchsorted(every, one.users), :, at] = np.stack([one.amount, one.count], axis=1)
    kinds, times = _kinds(table.reshape(len(every), -1))
    known, parts = np.array([one.share for one in shares]), list[Floats]()
    for start in range(0, REPLICATES, AT_ONCE):
        size = min(AT_ONCE, REPLICATES - start)
        drawn = random.multinomial(len(every), times / len(every), size=size).astype(np.float64)
        amount, count = np.moveaxis((drawn @ kinds).reshape(size, 2, len(shares)), 1, 0)
        # where nobody of a share was drawn, nothing is known against it
        parts.append(np.divide(amount, count, out=np.tile(known, (size, 1)), where=count > 0) - known)
    n = len(every)
    longer = math.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 + CONFIDENCE) / 2) / NORMAL if n > 1 else 1.0
    return longer * np.concatenate(parts).T


def _kinds(table: Array) -> tuple[Array, Array]:
    """Return the different rows of a table, and how often each is there; column by column, which is fast."""
    number = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        values, here = np.unique(column, return_inverse=True)
        number = np.unique(number * len(values) + here.reshape(-1), return_inverse=True)[1].reshape(-1)
    _, first, times = np.unique(number, return_index=True, return_counts=True)
    return table[first], times


def _summed(differences: Floats, noise: Floats, shares: Sequence[ByUser]) -> Difference:
    """Return the mean over seeds, with what the choice of users adds to it and what the choice of seeds does.

    The mean of few seeds has Student's distribution. What differs between seeds because their test samples do is in
    both, so that the interval is, if anything, too wide.
    """
    seeds = len(differences)
    mean, noise = float(differences.mean()), noise.mean(axis=0)
    low, high = tested = tuple(float(end) for end in np.quantile(noise, _TAILS))
    deviation = float(differences.std(ddof=1)) if seeds > 1 else None
    if deviation:
        low, high = (_quantile(noise, deviation / math.sqrt(seeds), seeds - 1, tail) for tail in _TAILS)
    return Difference(
        points=100 * mean,
        low=100 * (mean + low),
        high=100 * (mean + high),
        seeds=seeds,
        users=len(np.unique(np.concatenate([one.users for one in shares]))),
        predictions=int(sum(one.count.sum() for one in shares)),
        tested=100 * max(-tested[0], tested[1]),
        deviation=None if deviation is None else 100 * deviation,
    )


def _quantile(noise: Floats, error: float, freedom: int, share: float) -> float:
    """Return a quantile of the sum of noise and of Student's t times an error; nothing of it is drawn."""
    from scipy.special import stdtr, stdtrit

    reach = error * abs(float(stdtrit(freedom, share)))
    low, high = float(noise.min()) - reach, float(noise.max()) + reach
    while high - low > 1e-9:
        middle = (low + high) / 2
        if stdtr(freedom, (middle - noise) / error).mean() < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2
