"""Rows of metrics, one per method and round, and the summary made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from securedfl.federation.algorithm3 import Round
from securedfl.federation.methods import METHODS

Row = dict[str, Any]

SCALARS = (
    "method",
    "round",
    "accuracy",
    "loss",
    "train_loss",
    "error_mse",
    "error_max",
    "bytes_per_peer",
    "train_seconds",
    "average_seconds",
)
"""The columns of metrics.csv; metrics.jsonl has ``peer_accuracy`` and ``peer_loss`` as well."""


def make_row(method: str, outcome: Round, weights: Sequence[int]) -> Row:
    """Turn a round into plain values; accuracy and loss are pooled over all peers' own test data.

    Parameters
    ----------
    method, outcome
        What ran.
    weights
        Training samples per peer, over which the training loss is pooled.
    """
    scores, average = outcome.scores, outcome.average
    count = sum(score.count for score in scores)
    train_loss = None
    if outcome.train_losses is not None:
        train_loss = float(np.average(outcome.train_losses, weights=weights))
    return {
        "method": method,
        "round": outcome.number,
        "accuracy": sum(score.correct for score in scores) / count,
        "loss": sum(score.loss for score in scores) / count,
        "peer_accuracy": [score.correct / score.count for score in scores],
        "peer_loss": [score.loss / score.count for score in scores],
        "train_loss": train_loss,
        "error_mse": average.error_mse if average else None,
        "error_max": average.error_max if average else None,
        "bytes_per_peer": average.bytes_per_peer if average else 0.0,
        "train_seconds": outcome.train_seconds,
        "average_seconds": average.seconds if average else 0.0,
    }


def summarise(method: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Sum up a method's rows; errors, bytes and times are those of the rounds after the initial average."""
    if not rows:
        return {"label": METHODS[method].label, "rounds": None}
    trained = [row for row in rows if row["round"] > 0] or list(rows)
    best = max(rows, key=lambda row: (row["accuracy"], -row["round"]))
    errors = [row["error_mse"] for row in trained if row["error_mse"] is not None]
    largest = [row["error_max"] for row in rows if row["error_max"] is not None]
    return {
        "label": METHODS[method].label,
        "rounds": rows[-1]["round"],
        "best_accuracy": best["accuracy"],
        "best_round": best["round"],
        "final_accuracy": rows[-1]["accuracy"],
        "final_loss": rows[-1]["loss"],
        "mean_error": float(np.mean(errors)) if errors else None,
        "max_error": max(largest) if largest else None,
        "bytes_per_peer_per_round": float(np.mean([row["bytes_per_peer"] for row in trained])),
        "train_seconds": float(sum(row["train_seconds"] for row in rows)),
        "average_seconds": float(sum(row["average_seconds"] for row in rows)),
    }
