"""Time of training against bare PyTorch loops that do the same updates.

python benchmarks/training.py                          all parts
python benchmarks/training.py --only whole --rounds 20 --repeat 5
python benchmarks/training.py --only local --models cnn,gru
python benchmarks/training.py --only round

whole: a `secured` training of 9 peers on digits, 100 rounds, with its report. Both train with one thread in one process
and score every peer's test data after every round. The bare loop has one module and one optimiser per peer, shuffles
with torch.randperm, and averages state dicts with torch.stack(...).mean(0).

local: samples per second of one peer's local update, for the paper's models on random data. Against a bare loop over
the same module with the same optimiser (aim: at most 5 % slower), and over the textbook's: nn.Conv2d, ReLU before
pooling, nn.GRU. All take turns, and the best of several turns counts, in CPU time of the one thread.

round: a whole round of 9 peers with the model `gru` on made-up text (320 + 36 sequences of 50 characters each): train,
average by `grouped`, score. Our own gradient of the recurrence against nn.GRU, all else the same. It stays in the
repository as long as it makes a round more than 1.3 times as fast.
"""

from __future__ import annotations

import argparse
import copy
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from securedfl.federation.algorithm3 import algorithm3
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import choose_design
from securedfl.federation.run_folder.summary import MethodSummary
from securedfl.federation.simulated.aggregation import SecureAggregation
from securedfl.federation.simulated.peers import SimulatedPeers
from securedfl.federation.task import make_task
from securedfl.federation.train import train
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.dealing import Dealt
from securedfl.learning.models.flat import FlatModel
from securedfl.learning.models.images import Convolution
from securedfl.learning.models.registry import build
from securedfl.learning.slices import PeerData, Slices
from securedfl.learning.training.known import KnownTask
from securedfl.learning.training.task import TrainingOptions
from securedfl.learning.training.team import InProcessTeam
from securedfl.learning.training.trainer import LocalTrainer, one_thread
from securedfl.reporting.report import write_report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs counts")
    parser.add_argument("--only", choices=["whole", "local", "round"])
    parser.add_argument("--models", default=",".join(WORK), help="of the part local")
    arguments = parser.parse_args()
    if arguments.only in (None, "whole"):
        whole(arguments)
    if arguments.only in (None, "round"):
        whole_round(arguments.peers, arguments.repeat)
    if arguments.only in (None, "local"):
        print("\nlocal updates of one peer, one thread, batch 32: samples per second, and time against ours")
        for name in arguments.models.split(","):
            local(name, arguments.repeat)


def whole(arguments: argparse.Namespace) -> None:
    settings = {"peers": arguments.peers, "rounds": arguments.rounds, "methods": "secured", "workers": 1}
    task = make_task(TrainConfig.resolve(settings))
    bare = ours = report = float("inf")
    parts = MethodSummary()
    for _ in range(arguments.repeat):
        seconds, accuracy = bare_loop(task, arguments.rounds)
        bare = min(bare, seconds)
        with tempfile.TemporaryDirectory() as folder:
            config = TrainConfig.resolve({**settings, "out": str(Path(folder) / "run")})
            started = time.perf_counter()
            summary = train(config).methods["secured"]
            trained = time.perf_counter()
            write_report(config.out)
            if (taken := time.perf_counter() - started) < ours:
                ours, parts, report = taken, summary, time.perf_counter() - trained
    batches = sum(-(-count // 32) for count in task.samples) * arguments.rounds
    print(f"{arguments.peers} peers, {arguments.rounds} rounds, {batches} updates of batch 32, one thread")
    print(f"bare PyTorch loop              {bare:7.2f} s   final accuracy {accuracy:.4f}")
    print(f"securedfl train (secured)      {ours:7.2f} s   final accuracy {parts.final_accuracy:.4f}")
    print(f"  of which local training      {parts.train_seconds:7.2f} s")
    print(f"  of which averaging           {parts.average_seconds:7.2f} s")
    print(f"  of which the HTML report     {report:7.2f} s   (the same for any number of rounds)")
    print(f"ratio                          {ours / bare:7.2f}     (aim: at most 1.10)")
    print(f"ratio without the report       {(ours - report) / bare:7.2f}")


def bare_loop(task: KnownTask, rounds: int) -> tuple[float, float]:
    """Train the same federation in the plainest way; return seconds and the final accuracy."""
    options = task.options
    started = time.perf_counter()
    with one_thread():
        torch.manual_seed(0)
        shape, classes = task.dataset.shape, task.dataset.classes
        models = [build(options.model, shape, classes) for _ in range(task.peers)]
        optimizers = [torch.optim.RMSprop(m.parameters(), lr=options.learning_rate) for m in models]
        slices = Slices(task.dataset, dict(enumerate(task.dealt)))
        data = [[torch.from_numpy(a) for a in vars(own).values()] for own in slices.values()]
        share_mean(models)
        for _ in range(rounds):
            for model, optimizer, (x, y, _, _) in zip(models, optimizers, data, strict=True):
                train_epoch(model, optimizer, x, y, options.batch_size)
            share_mean(models)
            right = count = 0
            for model, (_, _, x, y) in zip(models, data, strict=True):
                right += count_right(model, x, y)
                count += len(y)
    return time.perf_counter() - started, right / count


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, batch_size: int
) -> None:
    """Take a plain step for each batch, in an order drawn anew."""
    model.train()
    loss_of = nn.CrossEntropyLoss()
    order = torch.randperm(len(x))
    for start in range(0, len(x), batch_size):
        batch = order[start : start + batch_size]
        optimizer.zero_grad()
        loss_of(model(x[batch]), y[batch]).backward()
        optimizer.step()


def count_right(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> int:
    """Count the samples whose class the model finds."""
    model.eval()
    with torch.inference_mode():
        return int((model(x).argmax(dim=1) == y).sum())


def share_mean(models: list[nn.Module]) -> None:
    """Give every model the mean of all."""
    states = [model.state_dict() for model in models]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    for model in models:
        model.load_state_dict(copy.deepcopy(mean))


def whole_round(peers: int, repeat: int) -> None:
    """Print how long a round of the character model takes, with our own gradient and with nn.GRU."""
    random, train_count, test_count = np.random.default_rng(0), 320, 36
    size = peers * (train_count + test_count)
    text = random.integers(0, 76, (size, 51))
    dealt = tuple(Dealt(train=own[:train_count], test=own[train_count:]) for own in np.split(np.arange(size), peers))
    dataset = Dataset(name="made up", x=text[:, :-1], y=text[:, 1:], classes=76)
    task = KnownTask(dataset, dealt, TrainingOptions(model="gru", optimizer="adam"))
    config = TrainConfig.resolve({"peers": peers, "group_size": 3, "masks": "secret"})
    with InProcessTeam(task) as ours, InProcessTeam(task) as plain:
        plain._trainer.model = FlatModel(Textbook(build("gru", (50,), 76)))
        teams = {"our own gradient": ours, "nn.GRU": plain}
        design = choose_design(config)
        averages = {title: SecureAggregation(config, "secured", design, team.schema) for title, team in teams.items()}
        least = dict.fromkeys(teams, math.inf)
        for title, team in teams.items():
            # the first round warms up
            list(algorithm3(SimulatedPeers(team, averages[title]), rounds=1))
        for number in range(2, repeat + 2):
            for title, team in teams.items():
                started = time.process_time()
                list(algorithm3(SimulatedPeers(team, averages[title]), rounds=number, after=number - 1))
                least[title] = min(least[title], time.process_time() - started)
        apart = np.abs(ours.parameters - plain.parameters).max()
    print(f"\na whole round of {peers} peers, gru, {train_count} + {test_count} sequences each, one thread, CPU time")
    for title, seconds in least.items():
        print(f"  {title:<28} {seconds:7.2f} s   {seconds / least['our own gradient']:5.2f} x")
    print(f"  parameters differ by at most {apart:.1e} after {repeat + 1} rounds")


WORK = {
    "cnn": ((1, 28, 28), 10, 40, "rmsprop"),
    "gru": ((50,), 76, 30, "adam"),
    "resnet18": ((3, 32, 32), 10, 3, "rmsprop"),
}
"""Shape of a sample, classes, batches per turn and optimiser, as the paper has them."""

OPTIMIZERS = {"rmsprop": torch.optim.RMSprop, "adam": torch.optim.Adam}


def local(name: str, repeat: int) -> None:
    """Print samples per second of one peer's update, ours and bare."""
    shape, classes, batches, optimizer = WORK[name]
    random = np.random.default_rng(0)
    size = 32 * batches
    if name == "gru":
        x, y = (random.integers(0, classes, (size, *shape)) for _ in range(2))
    else:
        x, y = random.random((size, *shape), dtype=np.float32), random.integers(0, classes, size)
    with one_thread():
        options = TrainingOptions(model=name, optimizer=optimizer)
        trainer = LocalTrainer({0: PeerData(x, y, x[:1], y[:1])}, shape, classes, options)
        row = np.zeros(trainer.model.schema.size, np.float32)
        trainer.initialise(0, row)
        torch.manual_seed(0)
        ours = build(name, shape, classes)
        candidates: dict[str, Callable[[], object]] = {
            "securedfl": lambda: trainer.update(0, 1, row),
            "bare loop": bare_update(ours, optimizer, x, y),
            "bare loop, textbook modules": bare_update(textbook(name, copy.deepcopy(ours)), optimizer, x, y),
        }
        best = dict.fromkeys(candidates, math.inf)
        for _ in range(repeat + 1):  # the first turn also warms up
            for title, run in candidates.items():
                started = time.process_time()
                run()
                best[title] = min(best[title], time.process_time() - started)
    print(f"{name} ({trainer.model.schema.size:,} parameters, {batches} batches, {optimizer})")
    for title, seconds in best.items():
        ratio = seconds / best["securedfl"]
        note = "   (aim: at least 0.95)" if title == "bare loop" else ""
        print(f"  {title:<28} {size / seconds:8.1f} / s   {ratio:5.2f} x{note}")


def bare_update(model: nn.Module, optimizer: str, x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """Return a function that trains for one epoch in the plainest way."""
    steps = OPTIMIZERS[optimizer](model.parameters(), lr=0.001)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    loss_of = nn.CrossEntropyLoss()

    def run() -> None:
        model.train()
        order = torch.randperm(len(inputs))
        for start in range(0, len(inputs), 32):
            batch = order[start : start + 32]
            scores = model(inputs[batch])
            steps.zero_grad()
            loss_of(scores.reshape(-1, scores.shape[-1]), labels[batch].reshape(-1)).backward()
            steps.step()

    return run


class Textbook(nn.Module):
    """Embedding, GRU and scores, each as PyTorch has it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.embedding, self.gru, self.scores = model.embedding, model.gru, model.scores

    def forward(self, x: Tensor) -> Tensor:
        """Map batch x positions to batch x positions x classes."""
        return self.scores(self.gru(self.embedding(x))[0])


def textbook(name: str, model: nn.Module) -> nn.Module:
    """Return the same model made of PyTorch's own modules in their usual order."""
    if name == "gru":
        return Textbook(model)
    for parent in list(model.modules()):
        for key, child in list(parent.named_children()):
            if isinstance(child, Convolution):
                plain = nn.Conv2d(
                    child.in_channels,
                    child.out_channels,
                    child.kernel_size,
                    child.stride,
                    child.padding,
                    bias=child.bias is not None,
                )
                plain.load_state_dict(child.state_dict())
                setattr(parent, key, plain)
    if name == "cnn":
        layers = list(model)
        for at in (1, 4):  # the ReLU before the pooling
            layers[at], layers[at + 1] = layers[at + 1], layers[at]
        return nn.Sequential(*layers)
    return model


if __name__ == "__main__":
    main()
