"""From settings to what is trained: data, dealt to the peers, and the options of training; or an app. No torch."""

from __future__ import annotations

from pathlib import Path

from securedfl.federation.apps.app import EntryPoint, Make
from securedfl.federation.apps.settings import with_common
from securedfl.federation.apps.task import AppTask
from securedfl.federation.config import TrainConfig
from securedfl.learning.data import datasets
from securedfl.learning.data.dealing import deal, hold_back
from securedfl.learning.data.hub import Tell
from securedfl.learning.seeds import stream
from securedfl.learning.training.known import KnownTask
from securedfl.learning.training.task import Task


def make_task(config: TrainConfig, report: Tell | None = None) -> KnownTask:
    """Load the data, deal it to the peers and collect the options of training; ``report`` hears what takes long."""
    dataset = datasets.load(config.dataset, config.data_dir, report, config.columns)
    dataset = dataset.fraction(config.fraction, stream(config.seed, "fraction"))
    dataset, common = hold_back(dataset, config.held_back, config.seed)
    dealt = deal(
        dataset,
        config.peers,
        dealing=config.dealing,
        alpha=config.alpha,
        seed=config.seed,
        own_tests=common is None,
    )
    return KnownTask(dataset, dealt, config.options(), common)


def task_of(config: TrainConfig, app: Make | None = None, report: Tell | None = None) -> Task:
    """Return what a run trains: an app, given or named by the settings, or what `make_task` makes of a known data set.

    Parameters
    ----------
    config
        Of the run.
    app
        The function itself, where only this process has it.
    report
        Hears what takes long.
    """
    given = app or config.entry
    if given is None:
        return make_task(config, report)
    task = AppTask(EntryPoint.of(given, Path.cwd()), config)
    # a mistake in the app is told before anything is written
    task.schema()
    return task


def chosen_by(task: Task, config: TrainConfig) -> TrainConfig:
    """Return the settings with what an app says about the common model."""
    return with_common(config, task.common) if isinstance(task, AppTask) else config
