"""Who runs shards, seen from a team: whatever can start them, ask them, and say that one is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from securedfl.learning.training.cluster.plan import Node, Seat
from securedfl.learning.training.task import Maker


class LostError(Exception):
    """A shard is gone, with its peers; the text says why. A team starts it again."""


class Host(Protocol):
    """Starts shards and carries questions to them."""

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are there now."""

    def start(self, seat: Seat, make: Maker, *, again: bool) -> Any:
        """Start a `Shard` and return a handle of it; ``again`` if it takes the place of a lost one."""

    def stop(self, shard: Any) -> None:
        """End a shard, if it is there at all."""

    def share(self, value: Any) -> Any:
        """Return what stands for a value in questions, so that it travels to each node once."""

    def ask(self, shard: Any, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of a shard and return a ticket for its answer; a shard answers in the order of the calls."""

    def ready(self, tickets: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """Wait until one or more of the tickets have answers, and return those; none if the time has passed."""

    def collect(self, ticket: Any) -> Any:
        """Return the answer, or raise `LostError`."""

    def close(self) -> None:
        """End all shards, and whatever was started for them; may be called twice."""
