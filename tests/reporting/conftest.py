"""A small run folder, as `securedfl train` leaves it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from securedfl.designs.algorithm2 import randomized

PEERS = 9
CONFIG = 'protocol = "grouped"\nfinish = "exact"\n'


def metric(method: str, number: int) -> dict[str, Any]:
    """Return one line of metrics.jsonl with numbers that a test can foresee."""
    top = 0.8 if method == "local" else 0.96
    accuracy = top - (top - 0.1) * math.exp(-number)
    return {
        "method": method,
        "round": number,
        "accuracy": accuracy,
        "loss": 2.3 * math.exp(-number) + 0.1,
        "peer_accuracy": [accuracy + 0.001 * p for p in range(PEERS)],
        "peer_loss": [0.1] * PEERS,
        "train_loss": 0.1,
        "error_mse": {"local": None, "fedavg": 0.0}.get(method, 3.2e-15),
        "error_max": {"local": None, "fedavg": 0.0}.get(method, 1e-7),
        "bytes_per_peer": 0 if method == "local" else 480_000,
        "train_seconds": 1.0 if number else 0.0,
        "average_seconds": 0.0 if method == "local" else 0.25,
    }


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a run folder."""

    def make(
        *,
        methods: tuple[str, ...] = ("local", "fedavg", "secured"),
        rounds: int = 6,
        done: int | None = None,
        name: str = "demo",
        **summary: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        design = randomized(PEERS, 3, seed=0)
        design.save(folder / "design.json")
        (folder / "config.toml").write_text(CONFIG)
        last = rounds if done is None else done
        rows = [metric(m, r) for m in methods for r in range(last + 1)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        content = {
            "peers": PEERS,
            "rounds": rounds,
            "seed": 17,
            "dataset": "digits",
            "finished": last == rounds,
            "methods": {m: {"mean_error": metric(m, 1)["error_mse"]} for m in methods},
            "design": {"hash": design.hash, "gap": design.gap},
            "versions": {"securedfl": "0.1.0", "numpy": "2.0.0"},
        }
        (folder / "summary.json").write_text(json.dumps(content | summary))
        return folder

    return make
