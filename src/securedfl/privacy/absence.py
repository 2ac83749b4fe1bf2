"""Who may be missing from an average, and what that tells: totals of several rounds can be subtracted.

Where updates resemble each other from round to round, a total with a peer and a total without it give the peer's
update, near enough. So members change in blocks: within a window of rounds, each set of peers that was in the same
averages has at least two peers more than there are colluders, so at least two honest ones. Then totals over any of
these rounds, whatever is computed from them, are sums over whole blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Policy = Literal["blocks", "wait", "go on"]
Members = frozenset[int]


def smallest_block(collusion: int) -> int:
    """Return the fewest peers whose total may be told: two of them are honest, whoever is curious.

    A member knows its own update, also where nobody is expected to be curious.
    """
    return max(collusion, 1) + 2


def fewest_members(peers: int, collusion: int) -> int:
    """Return the fewest members of an average: more than half, so that a cut network never gives two, and a block."""
    return max(min(smallest_block(collusion), peers), peers // 2 + 1)


@dataclass(frozen=True, kw_only=True)
class Absence:
    """What a federation does when peers are missing.

    Parameters
    ----------
    policy
        ``wait`` for all peers; go on without the missing ones and their ``blocks``; or just ``go on``.
    block
        The fewest peers of a block: two more than may collude.
    window
        Over how many rounds totals are taken together.
    everybody
        Whether an average needs all peers of the roster as it is, whatever the policy says.
    lying
        How many peers may lie, also about whom they hear.
    """

    policy: Policy = "wait"
    block: int = 3
    window: int = 10
    everybody: bool = False
    lying: int = 0

    @classmethod
    def chosen(
        cls,
        policy: Policy | None,
        *,
        peers: int,
        collusion: int,
        can_lose: bool,
        window: int = 10,
        everybody: bool | None = None,
        lying: int = 0,
    ) -> Absence:
        """Return what was asked for; by default blocks, where more than half is left without one, else to go on.

        A protocol that needs all peers waits for them. ``everybody`` is told where the fewest members are not the
        default ones.
        """
        block = smallest_block(collusion)
        if everybody is None:
            everybody = fewest_members(peers, collusion) >= peers
        if not can_lose:
            policy, everybody = "wait", True
        chosen = policy or ("blocks" if peers > 2 * block else "go on")
        return cls(policy=chosen, block=block, window=window, everybody=everybody, lying=lying)

    def pick(self, present: Collection[int], history: Sequence[Members], n: int) -> Members:
        """Return who takes part, of those present; nobody if it must be waited for somebody.

        Parameters
        ----------
        present
            Who is ready.
        history
            The members of all averages of the window whose sums may have been seen, void ones too.
        n
            Peers of the roster.
        """
        here = frozenset(present)
        if self.policy == "go on":
            return here
        if self.policy == "wait":
            return here if len(here) == n else frozenset()
        chosen: set[int] = set()
        for pattern, peers in blocks(history, n).items():
            ready = sorted(here & peers)
            if not any(pattern):
                # the total tells the sum of those who are new
                most = len(ready)
            elif len(ready) == len(peers):
                chosen.update(ready)
                continue
            else:
                # enough must stay out as well
                most = min(len(ready), len(peers) - self.block)
            chosen.update(ready[:most] if most >= self.block else [])
        return frozenset(chosen)

    def allows(self, members: Iterable[int], history: Sequence[Members], n: int) -> bool:
        """Tell whether these members keep to the policy; whoever is asked to be one decides for itself."""
        if self.policy == "go on":
            return True
        wanted = frozenset(members)
        if self.policy == "wait":
            return len(wanted) == n
        before = {pattern: len(peers) for pattern, peers in blocks(history, n).items()}
        after = blocks([*history, wanted], n)
        return all(
            len(peers) >= self.block or not any(pattern) or (any(pattern[:-1]) and len(peers) == before[pattern[:-1]])
            for pattern, peers in after.items()
        )

    @property
    def sentence(self) -> str:
        """What holds over rounds, in words."""
        if self.policy == "wait" or self.everybody:
            return (
                "Over rounds: every average is over all peers, so totals of several rounds give no other sums, as long "
                "as the roster stays the same."
            )
        if self.policy == "blocks":
            alone = self.block <= 3
            whom = "a single peer" if alone else f"{self.block - 2} peers who pool what they received"
            return (
                f"Over rounds: peers are left out of averages in blocks of at least {self.block}, so from totals of up "
                f"to {self.window} rounds with different members {whom} can compute sums over two or more other peers "
                "only, even if updates stood still. This does not hold between rounds that are further apart, or if "
                "the roster changes."
            )
        liars = " A peer that lies can bring it about that another one is missing." if self.lying else ""
        return (
            "Over rounds: averages go on without peers that are missing. A total with a peer and one without it tell "
            f"that peer's update, up to how much the updates of the others changed between the two rounds.{liars}"
        )


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Who takes part where every round draws some of the peers: whole blocks, for the same reason.

    ``count`` of the ``peers`` are drawn in a round. Peers of a ``block`` are always drawn together; 1 draws peer by
    peer, which tells single updates over rounds.
    """

    peers: int
    count: int
    block: int

    @classmethod
    def chosen(cls, peers: int, count: int, *, collusion: int) -> Drawn:
        """Return a drawing of the smallest blocks with two honest peers at least; peer by peer, if none divide both."""
        fitting = (size for size in range(smallest_block(collusion), count + 1) if peers % size == 0 == count % size)
        return cls(peers=peers, count=count, block=next(fitting, 1))

    def members(self, random: np.random.Generator) -> tuple[int, ...]:
        """Draw the members of a round."""
        blocks = random.choice(self.peers // self.block, self.count // self.block, replace=False)
        return tuple(sorted(int(block) * self.block + i for block in blocks for i in range(self.block)))

    def fitting(self, collusion: int) -> list[int]:
        """Return the numbers of peers per round that can be drawn in blocks, nearest first."""
        least, below = smallest_block(collusion), range(1, self.peers)
        found = [k for k in below if Drawn.chosen(self.peers, k, collusion=collusion).block >= least]
        return sorted(found, key=lambda k: (abs(k - self.count), k))

    @property
    def sentence(self) -> str:
        """What holds over rounds, in words."""
        if self.block == 1:
            return (
                f"Every round draws {self.count} of {self.peers} peers. Totals of rounds with different members can be "
                "subtracted from each other, which tells single peers' updates, up to how much updates change from "
                "round to round."
            )
        return (
            f"Every round draws {self.count} of {self.peers} peers in fixed blocks of {self.block}, so totals of rounds"
            " with different members give sums of whole blocks, even if updates stood still. Who is drawn is no"
            " secret, so that drawing makes nothing more private."
        )


def blocks(history: Sequence[Members], n: int) -> dict[tuple[bool, ...], frozenset[int]]:
    """Return the peers by the averages that they were in."""
    found: defaultdict[tuple[bool, ...], set[int]] = defaultdict(set)
    for peer in range(n):
        found[tuple(peer in members for members in history)].add(peer)
    return {pattern: frozenset(peers) for pattern, peers in found.items()}
