"""Very many simulated peers: against a bare PyTorch loop and Flower's own simulation, and how memory grows.

python benchmarks/many_peers.py                        ratio and growth
python benchmarks/many_peers.py --only ratio --rounds 20 --repeat 3
python benchmarks/many_peers.py --only growth --peers 9,100,1000,10000
python benchmarks/many_peers.py --only flower          in an environment of its own, made the first time

ratio: 1,000 peers on digits, a tenth held back as the common test set, 100 of them drawn for each round (or
`--members`; 1000 is everybody). Each trains its one or two samples with a fresh optimiser. `securedfl train` with the
method secured, from settings to run folder, against a loop that does the same updates with the same members: one
module, one optimiser per update, a running mean of state dicts, and a score on the common test set after every round.
One thread, one process; processor time, because machines are noisy, and the best of several turns. The messages of
rounds 0 and 1 are passed, those of the others are not (docs/evidence/scale.md); the last lines say what each kind of
round costs.

growth: rounds of more and more peers, up to 100 members each, on made-up pictures in a folder of arrays that is mapped,
six samples for each peer; every number of peers in a process of its own, which tells its peak memory.

flower: the same work as in ratio with Flower's own simulation (clients on Ray), whose average hides nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import members
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.task import make_task
from securedfl.federation.train import train
from securedfl.learning.models.registry import build
from securedfl.learning.slices import Slices
from securedfl.learning.training.known import KnownTask
from securedfl.learning.training.trainer import one_thread
from training import count_right, train_epoch

HERE = Path(__file__).parent
WORK = {"peers": 1000, "held_back": 0.1, "methods": "secured", "workers": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["ratio", "growth", "flower", "one"])
    parser.add_argument("--members", type=int, default=100, help="peers that a round draws")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many turns counts")
    parser.add_argument("--peers", default="9,100,1000,10000", help="of the part growth")
    parser.add_argument("--protocol", default="grouped")
    arguments = parser.parse_args()
    if arguments.only == "one":
        one(int(arguments.peers), arguments)
    if arguments.only in (None, "ratio"):
        ratio(arguments)
    if arguments.only in (None, "growth"):
        growth(arguments)
    if arguments.only == "flower":
        flower(arguments)


@dataclass
class Watch(Observer):
    """Notes the time and processor time at the end of every round."""

    rows: list[Row] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def round_finished(self, row: Row) -> None:
        """Note a round."""
        self.rows.append(row)
        self.seconds.append(time.perf_counter())
        self.processor.append(time.process_time())

    def of(self, *, messages: bool) -> float | None:
        """Return the processor time of a round after the first, with or without messages; None if there was none."""
        kind = (None, True) if messages else (False,)
        found = [
            after - before
            for row, before, after in zip(self.rows[1:], self.processor, self.processor[1:], strict=False)
            if row.messages in kind
        ]
        return min(found, default=None)


def settings(arguments: argparse.Namespace, **more: Any) -> TrainConfig:
    drawn = {} if arguments.members == WORK["peers"] else {"peers_per_round": arguments.members}
    afresh = {"between_rounds": "forget", "rounds": arguments.rounds, "protocol": arguments.protocol}
    return TrainConfig.resolve({**WORK, **drawn, **afresh, **more})


def ours(arguments: argparse.Namespace) -> tuple[float, float, Watch, float]:
    """Return time, processor time, rounds, and the final accuracy of a whole run."""
    with tempfile.TemporaryDirectory() as folder:
        config = settings(arguments, out=str(Path(folder) / "run"))
        watch, started, used = Watch(), time.perf_counter(), time.process_time()
        summary = train(config, observer=watch).methods["secured"]
        return time.perf_counter() - started, time.process_time() - used, watch, summary.final_common_accuracy or 0.0


def ratio(arguments: argparse.Namespace) -> None:
    config = settings(arguments)
    task = make_task(config)
    bare_least = ours_least = float("inf")
    best = Watch()
    for _ in range(arguments.repeat):
        processor, accuracy = bare_loop(task, config)
        bare_least = min(bare_least, processor)
        _, processor, watch, ended = ours(arguments)
        if processor < ours_least:
            ours_least, best, reached = processor, watch, ended
    print(f"{config.peers} peers on digits, {config.members} members a round, {config.rounds} rounds")
    print(f"CPU time of one thread; load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    print(f"bare PyTorch loop              {bare_least:7.2f} s   final accuracy {accuracy:.4f}")
    print(f"securedfl train, whole         {ours_least:7.2f} s   final accuracy {reached:.4f}")
    print(f"ratio                          {ours_least / bare_least:7.2f}     (aim: at most 1.15)")
    each = bare_least / config.rounds
    for title, messages in (("a round without messages", False), ("a round with messages", True)):
        seconds = best.of(messages=messages)
        if seconds is not None:
            print(f"{title:<30} {seconds:7.3f} s   {seconds / each:5.2f} x a round of the loop")


def bare_loop(task: KnownTask, config: TrainConfig) -> tuple[float, float]:
    """Train the same members in the plainest way; return processor seconds and the final accuracy."""
    options = task.options
    used = time.process_time()
    with one_thread():
        torch.manual_seed(0)
        model = build(options.model, task.dataset.shape, task.dataset.classes)
        common = {name: value.clone() for name, value in model.state_dict().items()}
        slices = Slices(task.dataset, dict(enumerate(task.dealt)))
        data = [[torch.from_numpy(a) for a in vars(own).values()] for own in slices.values()]
        assert task.common is not None
        test_x, test_y = torch.from_numpy(task.common.x[:]), torch.from_numpy(task.common.y)
        for round in range(1, config.rounds + 1):
            who = members(config, round)
            total = {name: torch.zeros_like(value) for name, value in common.items()}
            for peer in who:
                model.load_state_dict(common)
                optimizer = torch.optim.RMSprop(model.parameters(), lr=options.learning_rate)
                x, y, _, _ = data[peer]
                train_epoch(model, optimizer, x, y, options.batch_size)
                for name, value in model.state_dict().items():
                    total[name] += value
            common = {name: value / len(who) for name, value in total.items()}
            model.load_state_dict(common)
            right = count_right(model, test_x, test_y)
    return time.process_time() - used, right / len(test_y)


def growth(arguments: argparse.Namespace) -> None:
    """Print what runs of more and more peers take, each in a process of its own."""
    print(f"\ncnn-small, up to {arguments.members} members a round, 6 samples each; CPU time")
    heads = ("peers", "members", "before round 1, s", "a round, s", "with messages, s", "peak memory, MB", "folder, MB")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for peers in map(int, arguments.peers.split(",")):
        options = ["--only", "one", "--peers", str(peers), "--members", str(arguments.members)]
        options += ["--protocol", arguments.protocol, "--rounds", "3"]
        run = subprocess.run(  # noqa: S603 - this script
            [sys.executable, __file__, *options], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if run.returncode:
            print(f"| {peers} | failed: {run.stderr.strip().splitlines()[-1:]} | | | | | |")
            continue
        found = json.loads(run.stdout.splitlines()[-1])
        cells = [peers, found["members"], *(found[key] for key in ("before", "round", "messages", "peak", "folder"))]
        print("| " + " | ".join(_number(cell) for cell in cells) + " |", flush=True)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def one(peers: int, arguments: argparse.Namespace) -> None:
    """Run some rounds of so many peers in this process, and print what they took as JSON."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pictures(folder / "data", 7 * peers)
        count = min(peers, arguments.members)
        drawn = {} if count == peers else {"peers_per_round": count - count % 4}
        config = TrainConfig.resolve(
            {
                **WORK,
                **drawn,
                "dataset": str(folder / "data"),
                "peers": peers,
                "rounds": arguments.rounds,
                "protocol": arguments.protocol,
                "between_rounds": "forget",
                "out": str(folder / "run"),
            }
        )
        watch, used = Watch(), time.process_time()
        train(config, observer=watch)
        size = sum(path.stat().st_size for path in (folder / "run").rglob("*") if path.is_file())
        result = {
            "members": config.members,
            "before": watch.processor[0] - used,
            "round": watch.of(messages=False) or watch.of(messages=True),
            "messages": watch.of(messages=True),
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "folder": size / 1e6,
        }
    print(json.dumps(result))


def pictures(folder: Path, count: int) -> None:
    """Write made-up pictures of ten classes as a folder of arrays."""
    random = np.random.default_rng(0)
    folder.mkdir()
    classes, y = random.normal(size=(10, 1, 8, 8)), random.integers(0, 10, count)
    np.save(folder / "x.npy", (classes[y] + random.normal(size=(count, 1, 8, 8))).astype(np.float32))
    np.save(folder / "y.npy", y)


def flower(arguments: argparse.Namespace) -> None:
    """Print how many rounds per second Flower's own simulation runs beside ours, taking turns."""
    sys.path.insert(0, str(HERE / "rivals"))
    from run import environment

    config = settings(arguments)
    task = make_task(config)
    assert task.common is not None
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data.npz"
        own = list(Slices(task.dataset, dict(enumerate(task.dealt))).values())
        np.savez(
            data,
            x=np.concatenate([one.train_x for one in own]),
            y=np.concatenate([one.train_y for one in own]),
            ends=np.cumsum([len(one.train_y) for one in own]),
            test_x=task.common.x[:],
            test_y=task.common.y,
        )
        given = {"data": str(data), "peers": config.peers, "members": config.members, "rounds": config.rounds}
        command = [str(environment("flower-training")), str(HERE / "rivals" / "flower_training.py"), json.dumps(given)]
        run = subprocess.run(  # noqa: S603 - a script beside this one
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE / "rivals")},
            check=False,
            stdin=subprocess.DEVNULL,
        )
    if run.returncode or not run.stdout.strip().splitlines()[-1:][0].startswith("{"):
        sys.exit(f"Flower failed: {run.stderr[-2000:]}")
    theirs = json.loads(run.stdout.strip().splitlines()[-1])
    seconds, _, watch, accuracy = ours(arguments)
    rounds = (len(watch.seconds) - 2) / (watch.seconds[-1] - watch.seconds[1])
    print(f"{config.peers} peers on digits, {config.members} members a round, after round 1")
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    speed = theirs["rounds_per_second"]
    print(f"Flower {theirs['flwr']}, simulation   {speed:9.3f} rounds / s   {theirs['accuracy']:.4f}")
    print(f"securedfl train             {rounds:9.3f} rounds / s   {accuracy:.4f}   (whole run {seconds:.1f} s)")
    print(f"ratio                       {rounds / speed:9.1f}     (aim: at least 5)")


if __name__ == "__main__":
    main()
