"""A design: which peers meet in which group at every iteration, and an independent check of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.designs.sizes import upper_bound
from securedfl.errors import DesignError

Group = tuple[int, ...]
Partition = tuple[Group, ...]

_ADVICE = "`securedfl design PEERS --out FILE` writes a design"


class Design:
    """Partitions of the peers 0..n-1 into groups such that no two peers share a group twice.

    Immutable, compared and hashed by content: the method that built it is a remark, not part of its identity.

    Parameters
    ----------
    labels
        ``labels[i, p]`` is the number of the group of peer ``p`` in partition ``i``. One small row per
        partition, so that thousands of peers fit in memory. Renumbered on entry: groups are counted in
        the order of their smallest member, so equal designs have equal labels.
    method
        How the design was built, for people.

    Raises
    ------
    DesignError
        The labels are no partitions of at least two peers. Whether two peers meet twice is checked by `verify`.

    Examples
    --------
    >>> import securedfl
    >>> design = securedfl.Design([[0, 0, 1, 1], [0, 1, 0, 1]])
    >>> design.n, design.gap, design.group(0, 1)
    (4, 2, (0, 2))
    """

    def __init__(self, labels: npt.ArrayLike, *, method: str = "given") -> None:
        raw = np.asarray(labels)
        if raw.ndim != 2 or raw.shape[0] < 1 or raw.shape[1] < 2 or not np.issubdtype(raw.dtype, np.integer):
            raise DesignError(
                "a design needs at least one partition of at least two peers: an integer array of shape "
                "(partitions, peers)"
            )
        self._labels = _canonical(raw)
        self._labels.setflags(write=False)
        self.method = method
        self._cache: dict[int, tuple[Partition, tuple[int, ...]]] = {}

    @classmethod
    def from_partitions(
        cls, partitions: Iterable[Iterable[Sequence[int]]], *, peers: int | None = None, method: str = "given"
    ) -> Design:
        """Build from explicit groups; a peer that is missing, foreign or named twice is an error.

        Parameters
        ----------
        partitions
            One list of groups per partition.
        peers
            The number of peers; by default, what the first partition holds.
        method
            How the design was built, for people.
        """
        rows = []
        for i, partition in enumerate(partitions):
            groups = [[_peer(p, i) for p in group] for group in partition]
            n = peers = peers if peers is not None else sum(map(len, groups))
            row = np.full(n, -1, dtype=np.int64)
            for label, group in enumerate(groups):
                if not group:
                    raise DesignError(f"partition {i} has an empty group")
                for p in group:
                    if not 0 <= p < n:
                        raise DesignError(f"partition {i} names peer {p}, but peers are numbered 0 to {n - 1}")
                    if row[p] >= 0:
                        raise DesignError(f"partition {i} names peer {p} twice")
                    row[p] = label
            missing = np.flatnonzero(row < 0)
            if missing.size:
                raise DesignError(f"partition {i} leaves out peer {missing[0]}; every peer must be in one group")
            rows.append(row)
        if not rows:
            raise DesignError("a design needs at least one partition")
        return cls(np.stack(rows), method=method)

    @classmethod
    def everyone(cls, n: int) -> Design:
        """All peers in one group: the communication of classic ADMM (Algorithm 1)."""
        return cls(np.zeros((1, n), dtype=np.int64), method="all-to-all")

    @property
    def n(self) -> int:
        """The number of peers."""
        return int(self._labels.shape[1])

    @property
    def gap(self) -> int:
        """The number of partitions: how many iterations pass before the same two peers may meet again."""
        return int(self._labels.shape[0])

    @property
    def labels(self) -> npt.NDArray[np.integer[Any]]:
        """Read-only ``(gap, n)`` array of group numbers."""
        return self._labels

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The group sizes that occur, ascending."""
        found: set[int] = set()
        for row in self._labels:
            found.update(np.unique(np.bincount(row)).tolist())
        return tuple(sorted(found))

    @property
    def group_size(self) -> int:
        """The largest group size."""
        return self.sizes[-1]

    @cached_property
    def bound(self) -> int:
        """The most partitions that any design with these group sizes can have.

        No pair meets twice, so the pairs that the partitions use fit into n(n-1)/2; see `upper_bound`.
        """
        kinds = {tuple(sorted(np.bincount(row).tolist(), reverse=True)) for row in self._labels}
        if len(kinds) == 1:
            return upper_bound(next(iter(kinds)))
        fewest_pairs = min(sum(int(size) * (int(size) - 1) // 2 for size in kind) for kind in kinds)
        return (self.n * (self.n - 1) // 2) // max(fewest_pairs, 1)

    def partition(self, iteration: int) -> Partition:
        """Return the groups of an iteration (from 0; after the last partition the first comes again)."""
        return self._at(iteration)[0]

    def group(self, peer: int, iteration: int) -> Group:
        """Return the group of a peer at an iteration, itself included, in ascending order."""
        partition, labels = self._at(iteration)
        return partition[labels[peer]]

    def turns(self, round: int, count: int) -> tuple[int, ...]:
        """Return which ``count`` partitions a round uses: each round goes on where the one before ended."""
        return tuple((round * count + i) % self.gap for i in range(count))

    def used(self, round: int, count: int) -> npt.NDArray[np.integer[Any]]:
        """Return the labels of those partitions."""
        return self._labels[list(self.turns(round, count))]

    def rotation(self, count: int) -> int:
        """Return after how many rounds of ``count`` partitions the same ones come again."""
        return self.gap // math.gcd(self.gap, count)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions as tuples; for very large designs prefer `labels`."""
        return tuple(groups(row) for row in self._labels)

    def first(self, count: int) -> Design:
        """Return the design of the first ``count`` partitions only."""
        if not 1 <= count <= self.gap:
            raise DesignError(f"cannot take {count} partitions of {self.gap}")
        return Design(self._labels[:count], method=self.method)

    def verify(self) -> None:
        """Raise `DesignError` naming the first two peers who share a group twice, and where.

        Reads nothing but the labels, so it is independent of every construction.
        """
        met_in = np.zeros((self.n, self.n), dtype=bool)
        for i, row in enumerate(self._labels):
            first, second = pairs(row)
            again = np.flatnonzero(met_in[first, second])
            if again.size:
                a, b = int(first[again[0]]), int(second[again[0]])
                j = int(np.flatnonzero(self._labels[:i, a] == self._labels[:i, b])[0])
                raise DesignError(f"peers {a} and {b} meet twice: in partition {j} and in partition {i}")
            met_in[first, second] = True

    @cached_property
    def hash(self) -> str:
        """Short content hash that peers compare before they start."""
        digest = hashlib.sha256(b"securedfl design 1\0")
        digest.update(np.array(self._labels.shape, dtype="<u8").tobytes())
        for row in self._labels:
            digest.update(row.astype("<u4").tobytes())
        return digest.hexdigest()[:16]

    def to_json(self) -> str:
        """Return the design as JSON; `from_json` reads it back and checks the hash."""
        return "".join(self.json_pieces())

    def json_pieces(self) -> Iterator[str]:
        """Yield the JSON text partition by partition: as tuples, thousands of them would fill the memory."""
        about = {
            "peers": self.n,
            "group_size": self.group_size,
            "method": self.method,
            "gap": self.gap,
            "bound": self.bound,
            "hash": self.hash,
        }
        yield json.dumps(about)[:-1] + ', "partitions": ['
        for i, row in enumerate(self._labels):
            yield ("," if i else "") + json.dumps(groups(row))
        yield "]}"

    @classmethod
    def from_json(cls, text: str) -> Design:
        """Read `to_json`'s text; a damaged or edited file is an error."""
        try:
            data = json.loads(text)
            partitions, peers = data["partitions"], data.get("peers")
            design = cls.from_partitions(partitions, peers=peers, method=str(data.get("method", "given")))
        except DesignError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DesignError(f'not a design: expected JSON with "partitions" ({error})') from None
        if data.get("hash", design.hash) != design.hash:
            raise DesignError(f"the design's content has hash {design.hash}, but the file says {data['hash']}")
        design.verify()
        return design

    def save(self, path: str | Path) -> None:
        """Write JSON to a file."""
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(self.json_pieces())
            file.write("\n")

    @classmethod
    def load(cls, path: str | Path) -> Design:
        """Read and verify a JSON file written by `save` or `securedfl design --out`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise DesignError(f"cannot read the design file {path}: {why}; {_ADVICE}") from None
        try:
            return cls.from_json(text)
        except DesignError as error:
            raise DesignError(f"{path}: {error}; {_ADVICE}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Design) and np.array_equal(self._labels, other._labels)

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        about = f"n={self.n}, gap={self.gap}, sizes={self.sizes}"
        return f"Design({about}, method={self.method!r}, hash={self.hash})"

    def _at(self, iteration: int) -> tuple[Partition, tuple[int, ...]]:
        """Return the groups and labels of an iteration; kept, because protocols ask for every chunk."""
        index = iteration % self.gap
        if index not in self._cache:
            row = self._labels[index]
            self._cache[index] = (groups(row), tuple(row.tolist()))
        return self._cache[index]


def _peer(value: object, partition: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DesignError(f"partition {partition} names {value!r}; peers are whole numbers from 0")
    return int(value)


def _canonical(labels: npt.NDArray[Any]) -> npt.NDArray[np.integer[Any]]:
    """Renumber groups by their smallest member, in the smallest integer type that holds them."""
    n = labels.shape[1]
    result = np.empty(labels.shape, dtype=np.uint16 if n <= 1 << 16 else np.uint32)
    small = labels.min() >= 0 and labels.max() <= n
    position = np.arange(n)
    first = np.empty(n + 1, dtype=np.int64)
    starts = np.empty(n, dtype=bool)
    for source, out in zip(labels, result, strict=True):
        row = source if small else np.unique(source, return_inverse=True)[1].reshape(-1)
        # Writing backwards leaves the smallest member of each group; no sorting, for n = 10,000.
        first[row[::-1]] = position[::-1]
        leader = first[row]
        np.equal(leader, position, out=starts)
        out[:] = (np.cumsum(starts) - 1)[leader]
    return result


def groups(row: npt.NDArray[Any]) -> Partition:
    """Return the peers with the same label, in the order of labels."""
    order = np.argsort(row, kind="stable")
    cuts = np.flatnonzero(np.diff(row[order])) + 1
    return tuple(tuple(group.tolist()) for group in np.split(order, cuts))


def pairs(row: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return all pairs a < b of peers with the same label."""
    order = np.argsort(row, kind="stable")
    ordered = row[order]
    first, second = [], []
    for distance in range(1, int(np.bincount(row).max())):
        same = np.flatnonzero(ordered[:-distance] == ordered[distance:])
        first.append(order[same])
        second.append(order[same + distance])
    empty = np.empty(0, dtype=np.intp)
    return (np.concatenate(first), np.concatenate(second)) if first else (empty, empty)
