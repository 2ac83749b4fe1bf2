"""What a coalition can learn from shares: sums over connected components (docs/shares.md), by label propagation.

Two honest peers are joined if they share a group that no colluder is in. A coalition learns at most the sum of w over
each component; if the honest peers form a single component, that is the total and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations, islice

import numpy as np

from securedfl.designs import Design, best
from securedfl.errors import ConfigError, DesignError, PrivacyError
from securedfl.protocols.steps import Array

EFFORT = 10**8
"""Element operations up to which all coalitions are tried: about a second."""
_BATCH = 1 << 20


def components(
    design: Design, partitions: Iterable[int], coalition: Iterable[int]
) -> tuple[frozenset[int], ...]:
    """Return the components of honest peers: the sums that the coalition learns at most, over these partitions."""
    members = sorted(set(coalition))
    labels = _labels(design, tuple(partitions), np.array([members], dtype=np.intp).reshape(1, -1))[0]
    honest = [u for u in range(design.n) if u not in members]
    return tuple(
        frozenset(u for u in honest if labels[u] == k) for k in dict.fromkeys(labels[u] for u in honest)
    )


def windows(design: Design, strength: int) -> list[tuple[int, ...]]:
    """Return the sets of partitions that the rounds use in turn, each ``strength`` of them."""
    step = math.gcd(strength, design.gap)
    return [tuple((first + i) % design.gap for i in range(strength)) for first in range(0, design.gap, step)]


def exposing(design: Design, partitions: Sequence[int], coalitions: Array) -> Array:
    """Tell for each row of ``coalitions`` whether it learns more than the total."""
    labels = _labels(design, tuple(partitions), coalitions)
    np.put_along_axis(labels, coalitions, design.n, axis=1)
    lowest = labels.min(axis=1)
    np.put_along_axis(labels, coalitions, lowest[:, None], axis=1)
    return np.asarray(labels.max(axis=1) != lowest)


@lru_cache(maxsize=256)
def withstands(design: Design, strength: int, collusion: int) -> bool:
    """Tell whether every coalition of that size learns nothing but the total, in every round.

    All coalitions are tried while that takes at most about a second. Beyond that, more shares than colluders still
    ensure that no single peer is exposed, since two peers meet at most once; that no larger set is cut off is then only
    sought to be refuted, by the coalitions that surround a group.
    """
    n = design.n
    if not 0 < collusion < n - 1:
        return True  # nobody is curious, or the total gives away the one peer left, whatever the protocol
    if strength <= collusion:
        return False  # one colluder in each of a peer's groups
    for partitions in windows(design, strength):
        if _fewest_shares(design, partitions) <= collusion:
            return False  # a peer that sits out in some partitions has fewer shares than the strength
        rows = max(1, _BATCH // n)
        source = iter(
            combinations(range(n), collusion)
            if exhaustive(design, strength, collusion)
            else _surrounding(design, partitions, collusion)
        )
        while batch := list(islice(source, rows)):
            coalitions = np.array(batch, dtype=np.intp).reshape(len(batch), collusion)
            if exposing(design, partitions, coalitions).any():
                return False
    return True


def _fewest_shares(design: Design, partitions: Sequence[int]) -> int:
    """Return how many groups of two or more the peer with the fewest of them has."""
    return min(sum(len(design.group(u, i)) > 1 for i in partitions) for u in range(design.n))


def exhaustive(design: Design, strength: int, collusion: int) -> bool:
    """Tell whether `withstands` tries all coalitions of that size."""
    each = 5 * design.n * strength * len(windows(design, strength))
    return math.comb(design.n, collusion) * each <= EFFORT


@lru_cache(maxsize=256)
def strength_for(design: Design, collusion: int) -> int:
    """Return the smallest strength that withstands so many colluders; `PrivacyError` says what can be met."""
    if collusion < 0:
        raise ConfigError(f"the number of colluders to withstand cannot be negative, not {collusion}")
    if collusion > design.n - 2:
        raise PrivacyError(
            f"{collusion} colluders among {design.n} peers cannot be withstood by any protocol: the total alone gives "
            f"away the one peer left; ask for at most {design.n - 2}"
        )
    for strength in range(collusion + 1, design.gap + 1):
        if withstands(design, strength, collusion):
            return strength
    raise PrivacyError(_what_can_be_met(design, collusion))


@lru_cache(maxsize=64)
def design_withstanding(n: int, collusion: int, *, group_size: int | None = None, seed: int = 0) -> Design:
    """Return the best known design for n peers whose shares withstand so many colluders.

    Without a group size, the largest of 3 and 2 that will do: smaller groups have more partitions.
    """
    refusal: Exception | None = None
    for size in (3, 2) if group_size is None else (group_size,):
        try:
            design = best(n, size, seed)
            strength_for(design, collusion)
        except (DesignError, PrivacyError) as error:
            refusal = error
        else:
            return design
    raise PrivacyError(f"no design found for {n} peers that withstands {collusion} colluders: {refusal}")


def _what_can_be_met(design: Design, collusion: int) -> str:
    sizes = " and ".join(map(str, design.sizes))
    text = (
        f"{design.n} peers in groups of {sizes} ({design.gap} partition{'s' * (design.gap > 1)}) "
        f"cannot withstand {collusion} colluder{'s' * (collusion > 1)}; "
    )
    for fewer in range(collusion - 1, 0, -1):
        for strength in range(fewer + 1, design.gap + 1):
            if withstands(design, strength, fewer):
                return (
                    text
                    + f"they withstand {fewer} (strength {strength}). Ask for less, or use smaller groups"
                )
    if design.group_size > 2:
        return text + "use smaller groups: they have more partitions, and groups of 2 withstand the most"
    return text + f"add peers, or use a design with more partitions than {design.gap}"


def _labels(design: Design, partitions: tuple[int, ...], coalitions: Array) -> Array:
    """Return for each coalition and peer the smallest peer of its component; colluders keep their own number."""
    rows, n = len(coalitions), design.n
    labels = np.tile(np.arange(n, dtype=np.int32), (rows, 1))
    colluding = np.zeros((rows, n), dtype=bool)
    np.put_along_axis(colluding, coalitions, values=True, axis=1)
    joined = [(index, _clean(colluding, index)) for index in _tables(design, partitions)]
    while True:
        before = labels.copy()
        for index, clean in joined:
            members = labels[:, index]
            lowest = np.broadcast_to(members.min(axis=2, keepdims=True), members.shape)
            labels[:, index] = np.where(clean, lowest, members)
        if np.array_equal(before, labels):
            return labels


def _clean(colluding: Array, index: Array) -> Array:
    return np.asarray(~colluding[:, index].any(axis=2, keepdims=True))


@lru_cache(maxsize=64)
def _tables(design: Design, partitions: tuple[int, ...]) -> list[Array]:
    """Return the groups of each partition as arrays (groups, size), one per group size above 1."""
    tables = []
    for i in partitions:
        groups = design.partition(i)
        for size in sorted({len(group) for group in groups if len(group) > 1}):
            tables.append(np.array([group for group in groups if len(group) == size], dtype=np.intp))
    return tables


def _surrounding(design: Design, partitions: Sequence[int], collusion: int) -> list[tuple[int, ...]]:
    """Return coalitions that try to cut off the peers of a group: one colluder in each of their other groups."""
    found: set[tuple[int, ...]] = set()
    for i in partitions:
        for group in design.partition(i):
            inside = set(group)
            others = [set(design.group(u, j)) - inside for u in group for j in partitions if j != i]
            chosen: set[int] = set()
            for outside in others:
                if outside and not outside & chosen:
                    chosen.add(min(outside))
            rest = (u for u in range(design.n) if u not in inside and u not in chosen)
            ring = sorted(chosen)[:collusion]
            found.add(tuple(sorted(ring + list(islice(rest, collusion - len(ring))))))
    return sorted(coalition for coalition in found if len(coalition) == collusion)
