"""From settings to what is trained: data, dealt to the peers, and the options of training. No torch."""

from __future__ import annotations

from dataclasses import fields

from securedfl.federation.config import TrainConfig
from securedfl.learning.data import datasets
from securedfl.learning.data.dealing import deal
from securedfl.learning.data.hub import Report
from securedfl.learning.seeds import stream
from securedfl.learning.training.task import Task, TrainingOptions


def make_task(config: TrainConfig, report: Report | None = None) -> Task:
    """Load the data, deal it to the peers and collect the options of training; ``report`` hears what takes long."""
    dataset = datasets.load(config.dataset, config.data_dir, report)
    dataset = dataset.fraction(config.fraction, stream(config.seed, "fraction"))
    dealt = deal(dataset, config.peers, dealing=config.dealing, alpha=config.alpha, seed=config.seed)
    options = {field.name: getattr(config, field.name) for field in fields(TrainingOptions) if field.name != "private"}
    return Task(dataset, dealt, TrainingOptions(**options))
