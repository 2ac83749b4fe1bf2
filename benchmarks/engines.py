"""Time of a simulation on Ray against the same on processes of this machine, and of two nodes against one.

python benchmarks/engines.py
python benchmarks/engines.py --peers 99 --epochs 5 --rounds 5
python benchmarks/engines.py --only nodes

engines: `secured` on digits, with as many workers for both engines as this machine has cores. Rounds only, without the
start of processes and clusters, which is printed beside. Both take turns, and the best of several turns counts.

nodes: two nodes of one core each against one node of one core, on this machine (`ray.cluster_utils.Cluster`).

All compute the same bits, which is checked. Processor time is that of this process and of those that train peers; `all`
counts Ray's own processes, too, which take some all the time, so that it grows where a round waits for a busy machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from securedfl.federation.algorithm3 import algorithm3
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import choose_design
from securedfl.federation.simulated.aggregation import SecureAggregation
from securedfl.federation.simulated.peers import SimulatedPeers
from securedfl.federation.task import make_task
from securedfl.learning.training.cluster.placement import size
from securedfl.learning.training.cluster.ray_host import LOOPBACK, QUIET, RayHost
from securedfl.learning.training.cluster.team import ShardTeam
from securedfl.learning.training.known import KnownTask
from securedfl.learning.training.processes import ProcessTeam
from securedfl.learning.training.team import Team
from securedfl.learning.training.worker_count import cores
from securedfl.parameters import Array


@dataclass
class Turn:
    """What one team took: seconds to start, and per round: on the clock, of processors that train, and of all."""

    start: float = math.inf
    round: float = math.inf
    processor: float = math.inf
    all: float = math.inf
    parameters: Array | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", default="cnn-small")
    parser.add_argument("--epochs", type=int, default=1, help="of each peer in a round: how long a round is")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many turns counts")
    parser.add_argument("--only", choices=["engines", "nodes"])
    arguments = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: pip install 'securedfl[ray]'")
        return
    os.environ.update(QUIET | LOOPBACK)
    given = {name: getattr(arguments, name) for name in ("peers", "rounds", "model", "epochs")}
    config = TrainConfig.resolve({**given, "methods": "secured"})
    task = make_task(config)
    print(f"digits, {arguments.peers} peers, {arguments.model}, {arguments.rounds} rounds of secured, {cores()} cores")
    if arguments.only in (None, "engines"):
        count = min(cores(), arguments.peers)
        print(f"\nengines, {count} workers each")
        kinds = {"local": lambda: local(task, count), "ray, one node": lambda: on_ray(task, count, None)}
        found = measured(kinds, config, arguments.repeat)
        show(found, "local", "aim: at most 1.20")
    if arguments.only in (None, "nodes"):
        print("\nnodes of one core each")
        kinds = {f"{count} node{'s' * (count > 1)}": (lambda count=count: on_nodes(task, count)) for count in (1, 2)}
        found = measured(kinds, config, arguments.repeat)
        show(found, "1 node", "aim: 0.5 where two cores are idle")


def measured(kinds: dict[str, Callable[[], Iterator[Team]]], config: TrainConfig, repeat: int) -> dict[str, Turn]:
    found = {name: Turn() for name in kinds}
    for _ in range(repeat):
        for name, make in kinds.items():
            started = time.perf_counter()
            with make() as team:
                begun = time.perf_counter()
                before = processor()
                rounds(team, config)
                taken = time.perf_counter() - begun
                spent, everything = (now - then for now, then in zip(processor(), before, strict=True))
                turn = found[name]
                turn.start = min(turn.start, begun - started)
                turn.round = min(turn.round, taken / config.rounds)
                turn.processor = min(turn.processor, spent / config.rounds)
                turn.all = min(turn.all, everything / config.rounds)
                turn.parameters = team.parameters.copy()
                if isinstance(team, ShardTeam):
                    took, stated = size(max_taken(team)), size(max_stated(team))
                    print(f"  {name}: a shard took {took} at most, of which {stated} were stated")
    first, *others = found.values()
    assert all(np.array_equal(first.parameters, other.parameters) for other in others), "engines differ"
    return found


def max_taken(team: ShardTeam) -> int:
    """Ask all shards for the most bytes that they have taken."""
    import ray

    return max(ray.get([shard.handle.__ray_call__.remote(taken) for shard in team._shards]))


def taken(_shard: object) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def max_stated(team: ShardTeam) -> int:
    return max(shard.seat.memory for shard in team._shards)


def rounds(team: Team, config: TrainConfig) -> None:
    design = choose_design(config)
    average = SecureAggregation(config, "secured", design, team.schema)
    for _ in algorithm3(SimulatedPeers(team, average), rounds=config.rounds):
        # as a checkpoint after every round asks for
        team.states()


@contextmanager
def local(task: KnownTask, workers: int) -> Iterator[Team]:
    with ProcessTeam(task, workers) as team:
        yield team


@contextmanager
def on_ray(task: KnownTask, workers: int, address: str | None) -> Iterator[Team]:
    with ShardTeam(task, RayHost(address, cores=workers), workers, lambda _text: None) as team:
        yield team


@contextmanager
def on_nodes(task: KnownTask, count: int) -> Iterator[Team]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(count - 1):
            cluster.add_node(num_cpus=1)
        with on_ray(task, count, cluster.address) as team:
            yield team
    finally:
        cluster.shutdown()


def processor() -> tuple[float, float]:
    """Return the processor time of this process and of its descendants: of those that train peers, and of all."""
    ticks, parents, spent, training = os.sysconf("SC_CLK_TCK"), {}, {}, {os.getpid()}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            name = (path / "cmdline").read_text()
        except OSError:
            continue
        pid = int(path.name)
        parents[pid], spent[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / ticks
        if name.startswith("ray::Shard") or "spawn_main" in name:
            training.add(pid)
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(spent[pid] for pid in family & training), sum(spent[pid] for pid in family)


def show(found: dict[str, Turn], base: str, aim: str) -> None:
    print(f"  {'':<16}{'start':>10}{'round':>12}{'ratio':>8}{'processor':>14}{'ratio':>8}{'all':>14}{'ratio':>8}")
    for name, turn in found.items():
        first = found[base]
        times, spent, most = turn.round / first.round, turn.processor / first.processor, turn.all / first.all
        print(
            f"  {name:<16}{turn.start:8.1f} s{1000 * turn.round:9.1f} ms{times:8.2f}"
            f"{1000 * turn.processor:11.1f} ms{spent:8.2f}{1000 * turn.all:11.1f} ms{most:8.2f}"
            + (f"   ({aim})" if name != base else "")
        )


if __name__ == "__main__":
    main()
