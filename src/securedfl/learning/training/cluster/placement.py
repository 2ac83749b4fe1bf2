"""Which peers train on which node, and whether they fit: pure, decided before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from securedfl.errors import ConfigError
from securedfl.learning.training.processes import deal_work
from securedfl.learning.training.task import Task

PROCESS = 500_000_000
"""Bytes that a training process takes before it has a peer: Python, PyTorch, Ray; benchmarks/engines.py prints it."""

MODELS = 4
"""Rows as long as a model that a trainer keeps for all its peers: parameters, gradients, and what a step needs."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, and what it offers; ``home`` is where the run itself was started."""

    id: str
    address: str
    cores: int
    memory: int
    gpus: int = 0
    home: bool = False

    @property
    def name(self) -> str:
        """For people: several nodes may have the same address."""
        return f"{self.address} ({self.id[:6]})"


@dataclass(frozen=True)
class Needs:
    """About how many bytes a run takes.

    Attributes
    ----------
    shard
        Every shard, before it has a peer.
    peers
        Each peer in its shard.
    home
        The process that averages: all rows, and what peers go on from if a shard is lost.
    """

    shard: int
    peers: tuple[int, ...]
    home: int

    @classmethod
    def of(cls, task: Task, rows: int | None = None) -> Needs:
        """Return what a task takes, with rows for so many peers; activations are not known and not counted."""
        schema = task.schema()
        row = schema.size * np.dtype(schema.dtype).itemsize
        state, own_row = task.copies * row, row if rows is None else 0
        return cls(
            shard=PROCESS + MODELS * row,
            peers=tuple(own_row + state + data for data in task.data_bytes()),
            # states twice: those of the last round, and those that a checkpoint is written from
            home=PROCESS + (rows or task.peers) * row + 2 * task.peers * state,
        )

    def of_shard(self, peers: Sequence[int]) -> int:
        """Return what a shard of these peers takes."""
        return self.shard + sum(self.peers[peer] for peer in peers)

    def first(self, count: int) -> Needs:
        """Return what as many peers would take."""
        home = PROCESS + (self.home - PROCESS) * count // len(self.peers)
        return Needs(self.shard, self.peers[:count], home)


@dataclass(frozen=True)
class Placement:
    """A shard: where it is, whom it trains, and about how many bytes it takes."""

    node: Node
    peers: tuple[int, ...]
    memory: int


def seats(
    nodes: Sequence[Node], loads: Sequence[int], needs: Needs, workers: int | Literal["auto"], *, gpu: bool = False
) -> tuple[Placement, ...]:
    """Deal peers to shards, one per core or GPU, and shards to nodes; what does not fit is a `ConfigError`.

    Parameters
    ----------
    nodes
        What the cluster has.
    loads
        How much work each peer is.
    needs
        How many bytes the run takes.
    workers
        The number of shards; ``"auto"`` takes every core, as far as there are peers.
    gpu
        Whether peers train on GPUs, one shard on each.
    """
    what, offered = ("GPU", sum(node.gpus for node in nodes)) if gpu else ("core", sum(node.cores for node in nodes))
    if not offered:
        raise ConfigError(f"the nodes of the cluster have no {what} to train on; start them with some, or use others")
    count = min(offered if workers == "auto" else workers, len(loads))
    if count > offered:
        plural = "" if offered == 1 else "s"
        raise ConfigError(
            f"workers = {workers}, but the cluster has {offered} {what}{plural}, and every worker takes one; set "
            f"workers to {offered} or auto, or add nodes"
        )
    found = _placed(nodes, loads, needs, count, gpu=gpu)
    if over := _over(nodes, needs, found):
        raise ConfigError(over + _would_fit(nodes, loads, needs, count, gpu=gpu))
    return found


def _placed(
    nodes: Sequence[Node], loads: Sequence[int], needs: Needs, count: int, *, gpu: bool
) -> tuple[Placement, ...]:
    """Give each node about the same part of its cores (or GPUs) to do."""
    taken = dict.fromkeys(nodes, 0)
    found = []
    for peers in deal_work(loads, count):
        room = {node: node.gpus if gpu else node.cores for node in nodes}
        free = [node for node in nodes if taken[node] < room[node]]
        node = min(free, key=lambda node: (taken[node] / room[node], -node.memory))
        taken[node] += 1
        found.append(Placement(node, peers, needs.of_shard(peers)))
    return tuple(found)


def moved(seat: Placement, nodes: Sequence[Node], others: Sequence[Placement], needs: Needs) -> Placement | None:
    """Return where a lost shard starts again: on its node if that is there, else where the fewest are per core.

    None if no node that is left has the memory for it.
    """

    def taken(node: Node) -> list[Placement]:
        return [other for other in others if other.node.id == node.id]

    for node in nodes:
        if node.id == seat.node.id:
            return seat
    roomy = [
        node for node in nodes if not _over([node], needs, [replace(one, node=node) for one in [*taken(node), seat]])
    ]
    if not roomy:
        return None
    return replace(seat, node=min(roomy, key=lambda node: len(taken(node)) / max(1, node.cores)))


def _over(nodes: Sequence[Node], needs: Needs, placed: Sequence[Placement]) -> str:
    """Say of the first node with too little memory what it would have to hold; nothing if all have enough."""
    for node in nodes:
        here = [seat for seat in placed if seat.node == node]
        wanted = sum(seat.memory for seat in here) + (needs.home if node.home else 0)
        if wanted > node.memory:
            shards = _shards(len(here))
            home = f" and {size(needs.home)} for averaging" if node.home else ""
            most = max((seat.memory for seat in here), default=0)
            return (
                f"this run does not fit: node {node.name} offers {size(node.memory)} of memory and would need about "
                f"{size(wanted)} ({shards} of up to {size(most)}{home})"
            )
    return ""


def _would_fit(nodes: Sequence[Node], loads: Sequence[int], needs: Needs, count: int, *, gpu: bool) -> str:
    """Say what would fit: fewer shards, or else fewer peers."""

    def fits(peers: int, workers: int) -> bool:
        some = needs.first(peers)
        return not _over(nodes, some, _placed(nodes, loads[:peers], some, min(workers, peers), gpu=gpu))

    for workers in range(count - 1, 0, -1):
        if fits(len(loads), workers):
            return f"; workers = {workers} would fit"
    # one for each node is the leanest
    lean, few, many = min(count, len(nodes)), 0, len(loads)
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if fits(middle, lean) else (few, middle)
    total = size(sum(needs.peers) + needs.shard * len(nodes) + needs.home)
    more = f"add nodes, so that they offer about {total} together, or take a smaller model"
    return f"; {few} peers would fit with workers = {lean}; or {more}" if few > 1 else f"; {more}"


def stated(placed: Sequence[Placement], needs: Needs) -> str:
    """Say in one line where peers train, and how much memory that takes."""
    nodes = len({seat.node for seat in placed})
    most = max(placed, key=lambda seat: seat.memory)
    return (
        f"Ray: {_shards(len(placed))} on {nodes} node{'s' if nodes > 1 else ''}, up to {len(most.peers)} peers and "
        f"about {size(most.memory)} of memory in each, activations not counted; averaging takes {size(needs.home)}"
    )


def size(count: float) -> str:
    """Return a number of bytes as people read it.

    Examples
    --------
    >>> size(412_345_678), size(2_500_000_000)
    ('412 MB', '2.5 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count} shards"
