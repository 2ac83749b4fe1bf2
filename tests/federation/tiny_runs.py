"""Runs of a linear model, whole and stopped, and their numbers."""

from dataclasses import replace

import pytest

from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.train import train

TINY = {
    "model": "linear",
    "optimizer": "adam",
    "learning_rate": 0.01,
    "rounds": 3,
    "methods": "local,secured",
}


class StopAfter(Observer):
    """Stops a run as Ctrl-C does, after a round of a method."""

    def __init__(self, method, round):
        self.at = (method, round)

    def round_finished(self, row):
        if (row.method, row.round) == self.at:
            raise KeyboardInterrupt


def run(out, observer=None, **settings):
    return train(TrainConfig.resolve({**TINY, "out": str(out), **settings}), observer=observer)


def stopped(out, method="secured", round=1, **settings):
    with pytest.raises(KeyboardInterrupt):
        run(out, StopAfter(method, round), **settings)
    return out


def numbers(folder):
    return [replace(row, train_seconds=0.0, average_seconds=0.0) for row in read_rows(folder, Row)]
