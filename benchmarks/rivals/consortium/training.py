"""What every site trains, the same in all systems, and what of it is found again in a model.

Numpy only, because it runs in every rival's environment. A site adds numbers to the model that depend on site and round
alone. There are far more numbers in a model than sites and rounds, and averaging is linear, so that a model tells by
itself how much of each site's training in each round is in it: no system's word has to be taken for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np

SIZE = 20_003
"""Numbers in a model, as in SecureD-FL's own campaign."""
NOTES, SITE, PAUSE = "CONSORTIUM_NOTES", "CONSORTIUM_SITE", "CONSORTIUM_PAUSE"
"""Variables that tell a site where the observer's notes are, who it is, and how many seconds its training takes."""


def start() -> np.ndarray:
    """Return the model before the first round."""
    return np.zeros(SIZE, dtype=np.float32)


def step(site: int, round: int) -> np.ndarray:
    """Return what a site's training adds in a round, counted from 1: about the size of a network's weights."""
    return np.random.default_rng([site, round]).standard_normal(SIZE, dtype=np.float32) * np.float32(0.05)


def train(site: int, round: int, model: np.ndarray) -> np.ndarray:
    """Train for as long as a site does, and return its new model."""
    note(site, round, "trains", model)
    time.sleep(float(os.environ[PAUSE]))
    return model.reshape(-1).astype(np.float32) + step(site, round)


def hold(site: int, round: int, model: np.ndarray, notes: Path | None = None, at: float | None = None) -> None:
    """Take note of the model that a site has after a round (0: before the first), since now or some time before."""
    model = np.ascontiguousarray(model, dtype=np.float32).reshape(-1)
    folder = notes or Path(os.environ[NOTES])
    part = folder / f"part-{site}.npy"
    np.save(part, model)
    part.replace(folder / f"model-{site}-{round}.npy")
    note(site, round, "holds", model, folder, at)


def note(
    site: int,
    round: int,
    what: str,
    model: np.ndarray | None = None,
    notes: Path | None = None,
    at: float | None = None,
) -> None:
    """Write a line to the notes of a site, which are the observer's and not on the site's disk."""
    row = {"site": site, "round": round, "what": what, "time": time.time() if at is None else at}
    if model is not None:
        row["digest"] = hashlib.sha256(np.ascontiguousarray(model, dtype=np.float32).tobytes()).hexdigest()[:16]
    with ((notes or Path(os.environ[NOTES])) / f"site-{site}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def save(path: Path, round: int, model: np.ndarray) -> None:
    """Keep a checkpoint, as the users of systems do that keep none themselves."""
    part = path.with_suffix(".part.npz")
    np.savez(part, round=round, model=model)
    part.replace(path)


def load(path: Path) -> tuple[int, np.ndarray]:
    """Return round and model of a checkpoint, or the beginning."""
    if not path.exists():
        return 0, start()
    with np.load(path) as kept:
        return int(kept["round"]), kept["model"]


def found(model: np.ndarray, sites: int, rounds: int) -> np.ndarray:
    """Return how much of each site's training in each round is in a model: one row per round, one column per site."""
    parts = np.stack([step(k, r + 1) for r in range(rounds) for k in range(sites)]).astype(np.float64)
    weights, *_ = np.linalg.lstsq(parts.T, model.astype(np.float64), rcond=None)
    return weights.reshape(rounds, sites)


def newest_round(model: np.ndarray, sites: int, rounds: int) -> int:
    """Return the last round of which something is in a model."""
    inside = found(model, sites, rounds).max(axis=1) > 0.5 / sites
    return int(inside.nonzero()[0].max()) + 1 if inside.any() else 0


def exact(members: list[list[int]]) -> np.ndarray:
    """Return the model of rounds that averaged exactly these sites, in float64."""
    total = np.zeros(SIZE)
    for r, each in enumerate(members):
        total += sum((step(k, r + 1).astype(np.float64) for k in each), np.zeros(SIZE)) / max(len(each), 1)
    return total
