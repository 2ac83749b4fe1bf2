"""The ledger of a run: how often peers met, what has been exposed so far, and how far bounded masks still hide.

Attempts add up: an average that was aborted and tried again with the same parameters gives a coalition the messages of
both. Rounds add up as far as updates resemble each other, so the ledger also takes all rounds together, as if
parameters stood still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations_with_replacement, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.designs.coalitions import components
from securedfl.designs.design import pairs
from securedfl.privacy.absence import blocks
from securedfl.privacy.account import Account
from securedfl.privacy.audit import Audit
from securedfl.privacy.symbolic.algebra import reduce
from securedfl.privacy.symbolic.sums import MOST_ROWS, computable_sums
from securedfl.protocols.protocol import Averaging

_MOST_PEERS_LISTED = 64
_MOST_COALITIONS = 100
"""How many coalitions are tried on all rounds together; those among the fewest peers first."""


@dataclass(frozen=True)
class Tried:
    """One attempt at the average of a round, as logs and metrics tell it: who was in it, and what may have been seen.

    Attributes
    ----------
    epoch, attempt
        How many attempts of the round were opened before, and the attempt's number.
    members
        Who took part.
    opened
        Whether sums of it may have been seen: the roster committed to it. Before that nothing is sent but masked
        shares.
    """

    epoch: int
    attempt: int
    members: tuple[int, ...]
    opened: bool


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One average that was begun, in a round of federated learning, which decides the partitions.

    ``parameters`` names what was averaged: attempts with the same name, by default the round's number, had the same
    parameters and add up. ``steps`` were taken before it was aborted; None if it was completed. ``members`` says whose
    average it was; None for everybody.
    """

    round: int
    parameters: int | None = None
    steps: int | None = None
    members: tuple[int, ...] | None = None

    @property
    def content(self) -> int:
        """The name of the parameters."""
        return self.round if self.parameters is None else self.parameters

    @property
    def opened(self) -> bool:
        """Whether sums of it may have been seen."""
        return self.steps is None


@dataclass(frozen=True)
class Ledger:
    """All attempts of a run so far, in order, with the audit of one average. A value: `add` returns a new one.

    ``peers`` says how many there are, if every average is of some of them: the audit is then of an average's members.
    """

    audit: Audit
    attempts: tuple[Attempt, ...] = ()
    peers: int | None = None

    @property
    def n(self) -> int:
        """The number of peers."""
        return self.audit.n if self.peers is None else self.peers

    def add(self, *attempts: Attempt) -> Ledger:
        """Return the ledger with further attempts."""
        return replace(self, attempts=self.attempts + attempts)

    @property
    def meetings(self) -> npt.NDArray[np.int64]:
        """How often each pair of peers saw each other's masked messages."""
        met = np.zeros((self.n, self.n), dtype=np.int64)
        who, times = self._met()
        met.flat[who] = times
        return met + met.T

    def _met(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the pairs that met, each as the smaller number times n plus the larger, and how often they did."""
        met = [np.empty(0, dtype=np.int64)]
        for attempt in self.attempts:
            who = np.arange(self.n) if self.peers is None or attempt.members is None else np.array(attempt.members)
            for row in self.audit.averaging.used(attempt.round):
                first, second = (who[places] for places in pairs(row))
                met.append(np.minimum(first, second) * self.n + np.maximum(first, second))
        return np.unique(np.concatenate(met), return_counts=True)

    def _pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return how often pairs met, and how many pairs did so often, without a square of all peers."""
        times, count = np.unique(self._met()[1], return_counts=True)
        never = self.n * (self.n - 1) // 2 - int(count.sum())
        return (np.append(0, times), np.append(never, count)) if never else (times, count)

    def exposed(self, coalition: Iterable[int]) -> tuple[int, ...]:
        """Return the peers of whom a coalition has computed the parameters of some round, retries added up."""
        members = tuple(sorted(set(coalition)))
        found: set[int] = set()
        cache: dict[tuple[Any, ...], set[int]] = {}
        for attempts in self._by_content().values():
            key = tuple((self._rotation(a.round), a.steps, a.members) for a in attempts)
            if key not in cache:
                cache[key] = self._learned(attempts, members)
            found |= cache[key]
        return tuple(sorted(found))

    def smallest_sum(self, coalition: Iterable[int]) -> tuple[int, ...]:
        """Return the fewest honest peers whose sum follows from all averages so far, if parameters stood still."""
        members = tuple(sorted(set(coalition)))
        basis = self._basis(self._opened(), members)
        present = np.flatnonzero(basis.any(axis=0))
        if not present.size:
            return ()
        # peers with equal columns are in the same sums, so that one column stands for them
        first, kinds = _alike(basis[:, present])
        peers = [present[kinds == kind].tolist() for kind in range(len(first))]
        found: list[tuple[int, ...]] = [(kind,) for kind in range(len(peers))]
        if len(basis) <= MOST_ROWS:  # few enough to try all combinations
            found = computable_sums([(np.arange(len(peers)), basis[:, present[first]])], 1, self.audit.ring)
        sums = (tuple(sorted(peer for kind in one for peer in peers[kind])) for one in found)
        return min(sums, key=lambda one: (len(one), one), default=())

    def worst_over_rounds(self, coalition: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the coalition, of as many as the given one, that computes the smallest sum; and that sum.

        Who was left out of an average subtracts its own update from that of the others that were. Peers that were in
        the same averages are alike as far as averages tell their total only, so one of them is tried for all.
        """
        given = tuple(sorted(set(coalition)))
        worst, smallest = given, self.smallest_sum(given)
        for other in self._coalitions(len(given)):
            if len(smallest) == 1:
                break
            found = self.smallest_sum(other)
            if found and (not smallest or len(found) < len(smallest)):
                worst, smallest = other, found
        return worst, smallest

    def _coalitions(self, size: int) -> Iterator[tuple[int, ...]]:
        """Yield coalitions of a size that differ in how many of them were in which averages."""
        history = [frozenset(range(self.n) if a.members is None else a.members) for a in self._opened()]
        classes = sorted((sorted(peers) for peers in blocks(history, self.n).values()), key=len)
        for chosen in islice(combinations_with_replacement(range(len(classes)), size), _MOST_COALITIONS):
            counts = Counter(chosen)
            if all(count <= len(classes[at]) for at, count in counts.items()):
                yield tuple(sorted(peer for at, count in counts.items() for peer in classes[at][:count]))

    def _opened(self) -> list[Attempt]:
        """Return the averages whose sums may have been seen; those with the same partitions and members once."""
        seen = (replace(a, round=self._rotation(a.round), parameters=0) for a in self.attempts if a.opened)
        return list(dict.fromkeys(seen))

    def _basis(self, attempts: Iterable[Attempt], coalition: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return a basis of what averages gave together, with one column per peer."""
        nothing = np.zeros((0, self.n), dtype=self.audit.ring.dtype)
        rows = np.vstack([nothing, *(self._sums_of(one, coalition) for one in attempts)])
        # peers of a block are in the same sums, so that one column stands for them
        first, kinds = _alike(rows)
        return reduce(rows[:, first], self.audit.ring)[:, kinds]

    def _sums_of(self, attempt: Attempt, coalition: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return what one average gave, as rows with one column per peer; the coalition's own parameters are known."""
        n, averaging = self.n, self.audit.averaging
        who = np.arange(n) if attempt.members is None else np.array(attempt.members)
        inside = [int(np.flatnonzero(who == peer)[0]) for peer in coalition if peer in who]
        if not self.audit.joined:
            places, bases = zip(*self.audit.view(attempt.round).functions(inside), strict=True)
            first = [basis[:, place % self.audit.places == 0] for place, basis in zip(places, bases, strict=True)]
            known = np.vstack([basis for basis in first if basis.shape[1] == self.audit.n])
            wide = np.zeros((len(known), n), dtype=known.dtype)
            wide[:, who] = known
            return wide
        sums = _components(averaging.among(len(who)), attempt.round, tuple(inside))
        rows = np.zeros((len(sums), n), dtype=self.audit.ring.dtype)
        for row, peers in zip(rows, sums, strict=True):
            row[who[list(peers)]] = 1
        return rows

    def interval(self, meetings: int) -> float | None:
        """Return the expected width of what so many messages leave of a parameter that did not move.

        k masks uniform over a width W leave an intersection of 2 W / (k + 1) on average.
        """
        widths = self.audit.averaging.settled.widths
        return min(widths) * (1.0 if meetings < 1 else 2 / (meetings + 1)) if widths else None

    def account(self, coalition: Iterable[int] = (0,)) -> Account:
        """Return what was given away so far.

        Parameters
        ----------
        coalition
            Whose knowledge to add up, by default peer 0's; take the certificate's worst one.
        """
        members = tuple(coalition)
        row, widths = self.audit.averaging.protocol, self.audit.averaging.settled.widths
        (times, pairs), (worst, smallest) = self._pairs(), self.worst_over_rounds(members)
        most = int(times.max(initial=0))
        return Account(
            peers=self.n,
            protocol=row.name,
            kind=row.masks,
            averages=len(self._by_content()),
            attempts=len(self.attempts),
            retries_with_the_same_parameters=sum(len(attempts) - 1 for attempts in self._by_content().values()),
            irregular_averages=self._irregular(),
            most_meetings_of_a_pair=most,
            pairs_by_meetings={str(t): int(p) for t, p in zip(times, pairs, strict=True)},
            coalition=members,
            exposed_so_far=self.exposed(members),
            coalition_over_rounds=worst,
            smallest_sum_over_rounds=smallest,
            mask_width=widths[0] if widths else None,
            interval_after_one_message=self.interval(1),
            interval_after_all_meetings=self.interval(most),
            meetings=self.meetings.tolist() if self.n <= _MOST_PEERS_LISTED else None,
        )

    def _irregular(self) -> list[dict[str, Any]]:
        """Return the averages that took several attempts or were not of everybody: what was opened, and of whom."""
        return [
            {
                "parameters": content,
                "attempts": [
                    {"members": "all" if a.members is None else list(a.members), "opened": a.opened} for a in attempts
                ],
            }
            for content, attempts in self._by_content().items()
            if len(attempts) > 1 or attempts[0].members is not None
        ]

    def _by_content(self) -> dict[int, list[Attempt]]:
        groups: dict[int, list[Attempt]] = {}
        for attempt in self.attempts:
            groups.setdefault(attempt.content, []).append(attempt)
        return groups

    def _rotation(self, round: int) -> int:
        rotation = self.audit.averaging.rotation
        return round if rotation is None else round % rotation

    def _learned(self, attempts: list[Attempt], members: tuple[int, ...]) -> set[int]:
        """Stack what each attempt gives; masks are fresh, so nothing else can be combined."""
        perfect = self.audit.averaging.protocol.masks == "perfect"
        if perfect:
            # Until its commit an attempt gives nothing that its graph does not, and the same graph twice gives no more.
            attempts = list(dict.fromkeys(a for a in attempts if a.opened))
        if self.peers is not None or (perfect and self.audit.joined):
            return _single(self._basis(attempts, members))
        if len(attempts) == 1 and attempts[0].steps is None and attempts[0].members is None:
            return set(self.audit.learns(members, attempts[0].round).exposed)
        n, coordinates = self.audit.n, self.audit.places
        ring = self.audit.ring
        rows = [np.zeros((0, n * coordinates), dtype=ring.dtype)]
        for attempt in attempts:
            if attempt.members is None:
                view = self.audit.view(attempt.round)
                for places, basis in view.functions(members, attempt.steps, total=attempt.steps is None):
                    wide = np.zeros((len(basis), n * coordinates), dtype=ring.dtype)
                    wide[:, places] = basis
                    rows.append(wide)
            elif attempt.steps is None:  # the total of fewer peers, which differs from the total of all
                inside = np.isin(np.arange(n), attempt.members) & ~np.isin(np.arange(n), members)
                rows.append(np.kron(inside, np.eye(coordinates)).astype(ring.dtype))
        return {place // coordinates for place in _single(reduce(np.vstack(rows), ring))}


@lru_cache(maxsize=1024)
def _components(averaging: Averaging, round: int, inside: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return whose sums a coalition computes in a round; kept, because most coalitions are in few of the rounds."""
    return components(averaging.used(round), inside)


def _single(basis: npt.NDArray[Any]) -> set[int]:
    """Return the columns of a basis that can be solved for."""
    return {int(np.flatnonzero(row)[0]) for row in basis[(basis != 0).sum(axis=1) == 1]}


def _alike(matrix: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return where each kind of column is first, and of which kind every column is; kinds are numbered as they come."""
    known: dict[bytes, int] = {}
    columns = np.ascontiguousarray(matrix.T)
    kinds = np.array([known.setdefault(column.tobytes(), len(known)) for column in columns], dtype=np.intp)
    return np.unique(kinds, return_index=True)[1], kinds
