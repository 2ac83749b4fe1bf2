"""Group sizes: how n peers are cut into groups of about s, and how many partitions can exist at most."""

from __future__ import annotations

from securedfl.errors import DesignError

MOST_PEERS = 20_000
"""Designs have about n**2 / 2 seats: more peers would take more memory than a machine is likely to have."""


def group_sizes(n: int, s: int) -> tuple[int, ...]:
    """Return the sizes of the groups of one partition, largest first.

    Groups of ``s`` where that divides; otherwise groups of ``s`` and ``s - 1``; otherwise of ``s + 1`` and
    ``s``; otherwise (few peers, large groups) as even as possible with no group above ``s``. Only ``s = 2``
    with an odd number of peers leaves a group of one: that peer sits out.
    """
    check(n, s)
    groups = -(-n // s)
    missing = groups * s - n
    if missing <= groups:
        return (s,) * (groups - missing) + (s - 1,) * missing
    groups, extra = divmod(n, s)
    if extra <= groups:
        return (s + 1,) * extra + (s,) * (groups - extra)
    groups += 1
    size, extra = divmod(n, groups)
    return (size + 1,) * extra + (size,) * (groups - extra)


def upper_bound(sizes: tuple[int, ...]) -> int:
    """Return the most partitions that groups of these sizes allow, by counting pairs and neighbours.

    No pair meets twice, so the pairs of all partitions fit into n(n-1)/2; a peer meets at least
    ``min(sizes) - 1`` new peers each time; and the members of one group of ``a`` must spread over ``a``
    different groups in every other partition.
    """
    n = sum(sizes)
    pairs = sum(size * (size - 1) // 2 for size in sizes)
    if pairs == 0 or len(sizes) < max(sizes):
        return 1
    by_pairs = (n * (n - 1) // 2) // pairs
    smallest = min(sizes)
    return by_pairs if smallest == 1 else min(by_pairs, (n - 1) // (smallest - 1))


def check(n: int, s: int) -> None:
    """Raise `DesignError` for numbers that no partition can have, naming the nearest that work."""
    for name, value in (("the number of peers", n), ("the group size", s)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise DesignError(f"{name} must be a whole number, not {value!r}")
    if n < 3:
        raise DesignError(f"{n} peers are too few for a design; the smallest has 3 peers")
    if n > MOST_PEERS:
        raise DesignError(f"{n} peers are too many for a design; the largest has {MOST_PEERS} peers")
    if s < 2:
        raise DesignError(f"groups of {s} average nothing; the smallest group size is 2")
    if s > n:
        raise DesignError(f"{n} peers cannot form a group of {s}; the largest group size is {n}")
