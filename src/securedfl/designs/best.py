"""Which design shall we use? The choice of the group size and of the number of partitions that an average uses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from securedfl.designs.coalitions import exhaustive, exposes, withstands
from securedfl.designs.design import Design
from securedfl.designs.known import best
from securedfl.designs.sizes import check, group_sizes
from securedfl.errors import ConfigError, PrivacyError

GROUP_SIZES = (3, 2, 4, 5)
"""Group sizes to choose from; the first, the paper's, wherever it needs no more partitions than the others."""

_MESSAGE_BYTES, _VECTOR_BYTES = 160, 4_000_000
"""A seed and what the network adds to any message, and a parameter vector of a usual size."""


@dataclass(frozen=True)
class Choice:
    """A design, how many partitions an average uses (``strength``), and how many colluders it withstands then."""

    design: Design
    strength: int
    collusion: int

    @property
    def exhaustive(self) -> bool:
        """Whether every coalition was tried, in every round; otherwise the worst was searched for."""
        return exhaustive(self.design, self.strength, self.collusion)

    @property
    def reason(self) -> str:
        """Why this design was chosen, for people."""
        tried = "every coalition was tried" if self.exhaustive else "the worst coalitions were searched for"
        cost = _vectors(self.design.n, self.design.group_size, self.strength)
        return (
            f"groups of {self.design.group_size} with strength {self.strength} withstand {self.collusion} "
            f"colluder{'s' * (self.collusion != 1)} ({tried}) at {cost:.2f} vectors per peer"
        )


Make = Callable[[int, int, int], Design]
"""Gives a design for peers, group size and seed, or raises `DesignError`."""

GroupSize = int | Literal["auto"]


def best_design(peers: int, *, collusion: int = 1, group_size: GroupSize = "auto", seed: int = 0) -> Design:
    """Return the design to use for so many peers: who meets whom.

    Parameters
    ----------
    peers
        How many take part, from 3.
    collusion
        How many of them may pool what they received and shall learn nothing but the total.
    group_size
        Peers per group; "auto" chooses as `choose` says.
    seed
        Other seeds give other names to the peers. The same arguments give the same design on every machine.

    Returns
    -------
    Design
        Verified: no two peers meet twice.

    Raises
    ------
    PrivacyError
        No known design withstands so many colluders; the text says how many can be withstood.
    DesignError
        No design has so few peers, or such groups.

    Examples
    --------
    >>> from securedfl.designs import best_design
    >>> design = best_design(16, collusion=1)
    >>> design.group_size, design.gap
    (4, 5)
    >>> design.group(0, 0)
    (0, 3, 6, 14)
    """
    return choose(peers, collusion=collusion, group_size=group_size, seed=seed).design


def choose(
    peers: int, *, collusion: int = 1, group_size: GroupSize = "auto", seed: int = 0, make: Make = best
) -> Choice:
    """Choose a design and the number of partitions per average such that ``collusion`` peers learn only the total.

    The fewest partitions decide, because they cost masks and messages. Of the group sizes that do with so many, it is 3
    if possible, else the one that sends the fewest bytes. `securedfl.designs.coalitions.withstands` is the judge.

    Parameters
    ----------
    peers, collusion, group_size, seed
        As for `best_design`.
    make
        What builds a design for peers, group size and seed; by default `best`.

    Raises
    ------
    PrivacyError, DesignError
        As for `best_design`.
    """
    _check(peers, collusion)
    return _met(nearest(peers, collusion=collusion, group_size=group_size, seed=seed, make=make), collusion)


@lru_cache(maxsize=64)
def nearest(
    peers: int,
    *,
    collusion: int = 1,
    group_size: GroupSize = "auto",
    seed: int = 0,
    make: Make = best,
    partitions: int | None = None,
) -> Choice:
    """Choose as `choose` does; where nothing withstands ``collusion`` peers, what withstands the most is taken.

    For those who judge the outcome themselves, such as an audit, or a run that allows exposure. A protocol may fix how
    many ``partitions`` an average uses. If those are too few, though more than the colluders, a design is taken with
    which they expose nobody, if there is one.
    """
    check(peers, 2 if group_size == "auto" else group_size)
    sizes = [size for size in GROUP_SIZES if size <= peers] if group_size == "auto" else [group_size]
    built = cache(lambda size: make(peers, size, seed))
    found = _most_withstood(peers, collusion, sizes, built)
    if partitions is None or found.strength <= partitions or not 0 < collusion < partitions:
        return found
    hiding = (built(size) for size in sizes if not exposes(built(size), partitions, collusion))
    return Choice(next(hiding, built(sizes[0])), partitions, 0)


@lru_cache(maxsize=64)
def withstanding(design: Design, collusion: int) -> Choice:
    """Return the smallest strength of this design for so many colluders, or for as many as it withstands."""
    return _most_withstood(design.n, collusion, [design.group_size], lambda _: design)


def strength_for(design: Design, collusion: int) -> int:
    """Return the smallest strength with which this design withstands so many colluders.

    Raises
    ------
    PrivacyError
        There is none; the text says what can be met.
    """
    _check(design.n, collusion)
    return _met(withstanding(design, collusion), collusion).strength


def _check(n: int, collusion: int) -> None:
    """Refuse a number of colluders that no design can withstand."""
    if isinstance(collusion, bool) or not isinstance(collusion, int) or collusion < 0:
        raise ConfigError(
            f"the number of colluders to withstand is a whole number and cannot be negative, not {collusion!r}"
        )
    check(n, 2)
    if collusion > n - 2:
        raise PrivacyError(
            f"{collusion} colluders among {n} peers cannot be withstood by any protocol: the total alone gives "
            f"away the one peer left; ask for at most {n - 2}"
        )


def _met(found: Choice, collusion: int) -> Choice:
    """Refuse a choice that withstands fewer colluders than were asked for, and say what can be met."""
    if found.collusion == collusion:
        return found
    sizes, gap = " and ".join(map(str, found.design.sizes)), found.design.gap
    text = (
        f"{found.design.n} peers in groups of {sizes} ({gap} partition{'s' * (gap > 1)}) cannot withstand "
        f"{collusion} colluder{'s' * (collusion > 1)}; "
    )
    if found.collusion:
        text += f"they withstand {found.collusion} (strength {found.strength}). Ask for less, or use smaller groups"
    elif found.design.group_size > 2:
        text += "use smaller groups: they have more partitions, and groups of 2 withstand the most"
    else:
        text += f"add peers, or use a design with more partitions than {gap}"
    raise PrivacyError(text)


def _most_withstood(peers: int, collusion: int, sizes: list[int], built: Callable[[int], Design]) -> Choice:
    """Return the choice for so many colluders, or for as many as can be withstood."""
    found = cache(lambda colluders: _least_strength(peers, colluders, sizes, built))
    most = max(0, min(collusion, peers - 2))
    if found(most) is None:
        # what withstands some colluders withstands fewer, so halving finds the most
        most = bisect_left(range(1, most), True, key=lambda colluders: found(colluders) is None)
    # any design withstands nobody
    return found(most) or Choice(built(sizes[0]), 1, 0)


def _least_strength(peers: int, collusion: int, sizes: list[int], built: Callable[[int], Design]) -> Choice | None:
    """Try strengths, the smallest first, and with each the group sizes in the order of preference."""
    strength = collusion
    while any(built(size).gap > strength for size in sizes):
        strength += 1
        for size in _preferred(sizes, peers, strength):
            design = built(size)
            if design.gap >= strength and withstands(design, strength, collusion):
                return Choice(design, strength, collusion)
    return None


def _preferred(sizes: list[int], peers: int, strength: int) -> list[int]:
    """Return the paper's group size first, then those that send the fewest bytes."""
    cost = {size: _vectors(peers, max(group_sizes(peers, size)), strength) for size in sizes}
    return sorted(sizes, key=lambda size: (size != GROUP_SIZES[0], cost[size], size))


def _vectors(n: int, s: int, strength: int) -> float:
    """Return the bytes that a peer sends with the share protocol in groups of s, as a multiple of its parameters.

    One share explicitly, (s-1)/s, the others as seeds; what it then owns, a slice for each partition, to be reduced;
    its segment of the result to everybody; and what each of the messages to its groups costs beyond its content.
    """
    others = (n - 1) / n
    messages = strength * (s - 1) * _MESSAGE_BYTES / _VECTOR_BYTES
    return (s - 1) / s + min(1.0, strength / s) * others + others + messages
