"""A whole run of a simulated federation: settings are checked, then every method is trained."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from securedfl.errors import ConfigError
from securedfl.federation.apps.app import EntryPoint, Make
from securedfl.federation.budget.planning import check_privacy
from securedfl.federation.budget.task import planned
from securedfl.federation.config import TrainConfig
from securedfl.federation.gate import Plans, pass_gate, save_certificate, settle
from securedfl.federation.methods import averaging_of, check_settings, protocol_of
from securedfl.federation.observer import Observer
from securedfl.federation.results import Counts, default_folder, leave_results
from securedfl.federation.run_folder.files import CODING, read_config
from securedfl.federation.run_folder.folder import RunFolder
from securedfl.federation.run_folder.live import Simulation, beating
from securedfl.federation.run_folder.summary import Summary
from securedfl.federation.simulated.method import lacks_model, train_method
from securedfl.federation.simulated.peers import rows_needed
from securedfl.federation.task import chosen_by, task_of
from securedfl.learning.devices import find_device
from securedfl.learning.models.registry import builder
from securedfl.learning.training.task import Task
from securedfl.learning.training.worker_count import check_engine, make_team
from securedfl.storage import path_of


def train(
    what: TrainConfig | Make | str | None = None, *, observer: Observer | None = None, **settings: Any
) -> Summary:
    """Train a simulated federation and compare methods, as ``securedfl train`` does.

    A script that sets ``workers`` above 1 needs the usual ``if __name__ == "__main__":``, because processes are
    spawned. ``securedfl report DIR`` makes a page of the run folder.

    Parameters
    ----------
    what
        All settings as one object; or an app: the function that makes it (see `App`), or its name ``module:function``.
        Without, a known data set is trained. Worker processes, and a later `resume`, import the function by its name;
        one that cannot be imported, such as one of a notebook's own, is trained in one process.
    **settings
        Everything that decides the run, one by one (docs/reference/configuration.md). ``protocol`` may be a `Protocol`
        of your own.
    observer
        Told about progress.

    Returns
    -------
    Summary
        What is in the run folder's summary.json: accuracies, errors, bytes and times per method, and certificates.

    Raises
    ------
    ConfigError, InvalidInputError
        Settings or data that make no run; nothing is written then.
    PrivacyError
        The settings do not withstand the colluders; the text says what would.
    RunFolderError
        The folder cannot be written, or holds a run already.

    Examples
    --------
    >>> import securedfl, tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> summary = securedfl.train(model="linear", rounds=2, methods="secured", out=folder)
    >>> summary.methods["secured"].rounds
    2
    """
    observer = observer or Observer()
    config, app = _settled(what, settings)
    if config.entry is None:
        builder(config.model)
        find_device(config.device)
    check_settings(config)
    check_engine(config.engine)
    check_privacy(config)
    config, design = settle(config)
    for method in config.methods:
        if protocol_of(config, method) is not None:
            # options that make no average are an error before anything is read or written
            averaging_of(config, method, design)
    made = task_of(config, app, observer.preparing)
    config = chosen_by(made, config)
    task, plans = planned(config, made, design)
    certificates = pass_gate(config, design, plans=plans)
    folder = RunFolder.create(path_of(config.out or default_folder(config), "the run folder"), config, design)
    save_certificate(folder.path, certificates)
    if made.coding is not None:
        made.coding.save(folder.path / CODING)
    return _run(folder, task, plans, observer)


def _settled(what: TrainConfig | Make | str | None, settings: dict[str, Any]) -> tuple[TrainConfig, Make | None]:
    """Return all settings, and the app if it was given as a function."""
    if isinstance(what, TrainConfig):
        if settings:
            raise ConfigError("give either a configuration or settings one by one, not both")
        return what, None
    if what is None:
        return TrainConfig.resolve(settings), None
    if "entry" in settings:
        raise ConfigError("give the app either as the first argument or as entry, not both")
    entry = EntryPoint.of(what, Path.cwd())
    return TrainConfig.resolve({**settings, "entry": entry.name}), entry.function


def resume(
    path: Path | str,
    *,
    app: Make | None = None,
    changes: Mapping[str, Any] | None = None,
    observer: Observer | None = None,
) -> Summary:
    """Continue a run that was stopped or killed, or extend one; the numbers are those of an uninterrupted one.

    Parameters
    ----------
    path
        The run folder.
    app
        Of a run with an app that cannot be imported by its name: the function that makes it.
    changes
        Settings given again. Only those that change no number may differ (workers, for instance), and ``rounds`` may
        be more than before.
    observer
        Told about progress.

    Returns
    -------
    Summary
        As of `train`.

    Raises
    ------
    RunFolderError
        There is no such run, or its files do not fit each other; the text says what to do.
    ConfigError, PrivacyError
        Settings that cannot change, or that do not protect the peers any more.

    Examples
    --------
    >>> import securedfl, tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> _ = securedfl.train(model="linear", rounds=1, methods="secured", out=folder)
    >>> securedfl.resume(folder, changes={"rounds": 2}).methods["secured"].rounds
    2
    """
    folder = RunFolder.open(path_of(path, "the run folder"), changes)
    with closing(folder):
        if folder.config.privacy is not None and folder.config.rounds != read_config(folder.path).rounds:
            raise ConfigError(
                "a run with [privacy] cannot be extended: the noise of its rounds was settled for the number of rounds "
                "that it began with; start a new run with more rounds"
            )
        observer = observer or Observer()
        task, plans = planned(folder.config, task_of(folder.config, app, observer.preparing), folder.design)
        pass_gate(folder.config, folder.design, plans=plans)
        if "rounds" in (changes or {}):
            folder.keep_settings()
        return _run(folder, task, plans, observer)


def _run(folder: RunFolder, task: Task, plans: Plans, observer: Observer) -> Summary:
    """Train what is left of a run; stopped or not, leave its results."""
    config = folder.config
    with closing(folder):
        done = folder.resume_points()
        observer.folder = folder.path
        left = sum(config.rounds - (done[m].round if m in done else 0) for m in config.methods)
        left = left or sum(lacks_model(folder, method) for method in config.methods)
        counts = Counts.of(folder)
        try:
            if left:
                if not task.movable and config.engine == "local" and config.workers not in ("auto", 1):
                    observer.preparing("The app cannot be imported by its name, so one process trains it (workers = 1)")
                made = make_team(
                    task,
                    config.workers,
                    updates=left,
                    rows=rows_needed(config),
                    engine=config.engine,
                    address=config.address,
                    gpu=config.device.startswith("cuda"),
                    tell=observer.told,
                )
                told = Simulation(config, observer)
                with made as team, beating(folder.path, told.now):
                    counts.begin(task, team)
                    told.started(folder.path, config, team.workers)
                    for method in config.methods:
                        train_method(
                            folder, task, team, method, done.pop(method, None), counts, plans.get(method), told
                        )
        except BaseException:  # Ctrl-C too: what was reached stays usable
            with suppress(Exception):  # the first error is the one to tell
                if folder.abandon():
                    observer.folder = None
                else:
                    leave_results(folder, counts.samples, counts.data, finished=False, plans=plans)
            raise
        return leave_results(folder, counts.samples, counts.data, finished=True, plans=plans)
