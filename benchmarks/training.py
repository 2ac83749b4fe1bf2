"""Time of a whole `secured` training against a bare PyTorch loop that does the same updates.

python benchmarks/training.py                          digits, 9 peers, 100 rounds
python benchmarks/training.py --rounds 20 --repeat 5

Both train with one thread in one process and score every peer's test data after every round. The bare loop has one
module and one optimiser per peer, shuffles with torch.randperm, and averages state dicts with torch.stack(...).mean(0).
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from securedfl.evaluation.report import write_report
from securedfl.federation.config import TrainConfig
from securedfl.federation.train import make_task, train
from securedfl.learning.models import build
from securedfl.learning.team import Task
from securedfl.learning.update import one_thread


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs counts")
    arguments = parser.parse_args()

    settings = {"peers": arguments.peers, "rounds": arguments.rounds, "methods": "secured", "workers": 1}
    task = make_task(TrainConfig.resolve(settings))
    bare = ours = report = float("inf")
    parts: dict[str, float] = {}
    for _ in range(arguments.repeat):
        seconds, accuracy = bare_loop(task, arguments.rounds)
        bare = min(bare, seconds)
        with tempfile.TemporaryDirectory() as folder:
            config = TrainConfig.resolve({**settings, "out": str(Path(folder) / "run")})
            started = time.perf_counter()
            summary = train(config)["methods"]["secured"]
            if (taken := time.perf_counter() - started) < ours:
                ours, parts = taken, summary
            started = time.perf_counter()
            write_report(config.out)
            report = min(report, time.perf_counter() - started)
    batches = sum(-(-len(share.train) // 32) for share in task.shares) * arguments.rounds
    print(f"{arguments.peers} peers, {arguments.rounds} rounds, {batches} updates of batch 32, one thread")
    print(f"bare PyTorch loop              {bare:7.2f} s   final accuracy {accuracy:.4f}")
    print(f"securedfl train (secured)      {ours:7.2f} s   final accuracy {parts['final_accuracy']:.4f}")
    print(f"  of which local training      {parts['train_seconds']:7.2f} s")
    print(f"  of which averaging           {parts['average_seconds']:7.2f} s")
    print(f"  of which the HTML report     {report:7.2f} s   (the same for any number of rounds)")
    print(f"ratio                          {ours / bare:7.2f}     (aim: at most 1.10)")
    print(f"ratio without the report       {(ours - report) / bare:7.2f}")


def bare_loop(task: Task, rounds: int) -> tuple[float, float]:
    """Train the same federation in the plainest way; return seconds and the final accuracy."""
    options = task.options
    started = time.perf_counter()
    with one_thread():
        torch.manual_seed(0)
        shape, classes = task.dataset.shape, task.dataset.classes
        models = [build(options.model, shape, classes) for _ in range(task.peers)]
        optimizers = [torch.optim.RMSprop(m.parameters(), lr=options.learning_rate) for m in models]
        data = [[torch.from_numpy(a) for a in vars(task.data(k)).values()] for k in range(task.peers)]
        loss_of = nn.CrossEntropyLoss()
        share_mean(models)
        for _ in range(rounds):
            for model, optimizer, (x, y, _, _) in zip(models, optimizers, data, strict=True):
                model.train()
                order = torch.randperm(len(x))
                for start in range(0, len(x), options.batch_size):
                    batch = order[start : start + options.batch_size]
                    optimizer.zero_grad()
                    loss_of(model(x[batch]), y[batch]).backward()
                    optimizer.step()
            share_mean(models)
            right = count = 0
            for model, (_, _, x, y) in zip(models, data, strict=True):
                model.eval()
                with torch.inference_mode():
                    right += int((model(x).argmax(dim=1) == y).sum())
                count += len(y)
    return time.perf_counter() - started, right / count


def share_mean(models: list[nn.Module]) -> None:
    """Give every model the mean of all."""
    states = [model.state_dict() for model in models]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    for model in models:
        model.load_state_dict(copy.deepcopy(mean))


if __name__ == "__main__":
    main()
