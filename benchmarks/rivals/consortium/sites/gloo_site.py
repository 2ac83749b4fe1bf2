"""A site of gloo under torchrun: train, all_reduce, keep a checkpoint; after a restart, go on from the newest one."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from training import SITE, hold, load, save, train

CHECKPOINT = Path("checkpoint.npz")
PATIENCE = timedelta(seconds=15)


def newest() -> tuple[int, np.ndarray]:
    """Return round and model of the newest checkpoint that any site has."""
    round, model = load(CHECKPOINT)
    rounds = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(rounds, torch.tensor([round]))
    best = max(range(len(rounds)), key=lambda rank: int(rounds[rank]))
    shared = torch.from_numpy(model)
    dist.broadcast(shared, best)
    return int(rounds[best]), shared.numpy()


def main() -> None:
    site, rounds = int(os.environ[SITE]), int(os.environ["CONSORTIUM_ROUNDS"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=PATIENCE)
    round, model = newest()
    while round < rounds:
        round += 1
        shared = torch.from_numpy(train(site, round, model))
        dist.all_reduce(shared)
        model = (shared / dist.get_world_size()).numpy()
        save(CHECKPOINT, round, model)
        hold(site, round, model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
