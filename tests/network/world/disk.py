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
    """Signs with the key that a site has now, and checks everybody's.

    A renewed key is on its disk when that is decided. The process takes it when it starts, whether or not its log knows
    of that, and after the step that tells it so, as the shell does.
    """

    def __init__(self, world: World, number: int) -> None:
        self._world, self._number = world, number
        self._own = self._newest()

    def _newest(self) -> bytes:
        line = self._world.state_before(len(self._world.checks.log)).peer(self._number)
        return line.key if line else self._world.peer(self._number).key

    def follow(self, key: bytes) -> bool:
        """Take the newest key if the log names another one than this process has; return whether that is one."""
        before = self._own
        if key != before:
            self._own = self._newest()
        return before != self._own

    def owns(self, key: bytes) -> bool:
        return key == self._own

    def sign(self, data: bytes) -> bytes:
        return self._world.sign(self._own, data)

    def verify(self, key: bytes, data: bytes, signature: bytes) -> bool:
        return self._world.sign(key, data) == signature
