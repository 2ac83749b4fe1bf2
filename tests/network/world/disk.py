"""What a site has besides its process: a disk, and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securedfl.network.core.messages import Decided, Promise, Record, Result, Stored, Vote
from securedfl.protocols.steps import Array
from tests.network.world.checks import Identity

if TYPE_CHECKING:
    from tests.network.world.world import World


class Disk:
    """What survives the process."""

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.records: list[Record] = []
        self.votes: set[Vote] = set()
        self.at = (0, 0)
        self.update: tuple[Identity, Array] | None = None
        self.results: dict[Result, Array] = {}

    def rewrite(self, log: list[Decided]) -> None:
        """Write the records anew, as a journal does after many of them."""
        self.records = list(Stored().add(*self.records).records(log))

    def append(self, record: Record) -> None:
        self.records.append(record)
        if isinstance(record, Promise):
            self.votes.update(record.votes)
            self.at = (record.index, record.ballot)
        elif isinstance(record, Decided):
            self.at = max(self.at, (record.index + 1, 0))


class Keys:
    """Signs with a site's own keys only, and checks everybody's."""

    def __init__(self, world: World, number: int) -> None:
        self._world, self._number = world, number

    def sign(self, key: bytes, data: bytes) -> bytes:
        key = key or self._world.peer(self._number).key
        assert key.startswith(f"key {self._number} ".encode())
        return self._world.sign(key, data)

    def verify(self, key: bytes, data: bytes, signature: bytes) -> bool:
        return self._world.sign(key, data) == signature
