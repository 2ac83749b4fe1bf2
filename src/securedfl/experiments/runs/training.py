"""The runs that an experiment needs: which they are, how far each one is, and training those that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from securedfl.errors import ConfigError, RunFolderError, unknown
from securedfl.experiments.presets import Preset, Scale, scaled_in_words
from securedfl.federation.config import TrainConfig
from securedfl.federation.identity import FREE, changed_settings
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.files import CONFIG, read_config
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.run_folder.summary import read_summary
from securedfl.learning.data.datasets import source
from securedfl.learning.training.task import Initial

RUNS = "runs"
"""The folder of all runs, which experiments share."""

Stage = Literal["absent", "unfinished", "finished"]
"""How far a run is."""


@dataclass(frozen=True)
class NeededRun:
    """One run that an experiment needs, and where it is or will be.

    Attributes
    ----------
    scaled, variant
        How it is smaller than the paper's, and what sets it apart from other runs of its data set, peers and seed.
    """

    config: TrainConfig
    folder: Path
    scaled: str = ""
    variant: str = ""

    @property
    def about(self) -> str:
        """What is trained, for people."""
        variant = f", {self.variant}" if self.variant else ""
        scaled = f" (scaled: {self.scaled})" if self.scaled else ""
        return f"{self.config.dataset}, {self.config.peers} peers, seed {self.config.seed}{variant}{scaled}"


@dataclass(frozen=True)
class Turn:
    """The run whose turn it is, and which one it is of those that need training.

    Attributes
    ----------
    seconds_after, unknown
        How long the runs after it will take, as far as others tell, and the data sets that nothing is known of yet.
    """

    run: NeededRun
    state: Stage
    number: int
    count: int
    seconds_after: float | None
    unknown: tuple[str, ...]


Watch = Callable[[Turn], AbstractContextManager[Observer]]
"""Gives the observer of each training."""


def needed_runs(
    preset: Preset,
    out: Path,
    *,
    scale: Scale | None = None,
    datasets: Sequence[str] | None = None,
    peers: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    rounds: int | None = None,
    initial: Initial | None = None,
    machine: Mapping[str, Any] | None = None,
) -> list[NeededRun]:
    """Return the runs that an experiment needs: one for each data set, number of peers, seed and variant.

    Parameters
    ----------
    preset, scale
        The experiment, and how much of it to run.
    out
        The folder of all results; runs go into ``runs/`` there.
    datasets, peers, seeds, methods, rounds, initial
        Instead of the preset's; runs of fewer methods have folders of their own.
    machine
        Further settings, of those that change no number.
    """
    scale = scale or Scale()
    if rounds is not None:
        if scale.rounds != 1:
            raise ConfigError("give the number of rounds by --rounds or by --scale, not by both")
        scale = replace(scale, rounds=rounds / max(preset.rounds, 1))
    own: dict[str, Any] = {
        "rounds": rounds or scale.of_rounds(preset.rounds),
        "fraction": scale.users,
        "width": scale.width,
    }
    own |= {} if initial is None else {"initial": initial}
    if methods is not None:
        known = preset.train["methods"]
        for method in methods:
            if method not in known:
                raise unknown("--methods", method, known)
        if len(set(methods)) < 2:
            raise ConfigError(f"one method alone compares nothing: give two or more of {','.join(known)}")
        own["methods"] = [method for method in known if method in methods]
    runs = []
    for dataset, count, seed, iterations, variant in product(
        datasets or preset.datasets,
        peers or preset.peers,
        preset.seeds if seeds is None else seeds,
        preset.iterations if preset.train_by_iterations else (None,),
        preset.variants or ("",),
    ):
        values = settings(preset, dataset, count, seed, iterations, variant) | own | dict(machine or {})
        if "keep_updates" in values:
            # A short training keeps its last round at least.
            values["keep_updates"] = min(values["keep_updates"], values["rounds"])
        varied = "" if iterations is None else f"-iterations{iterations}"
        varied += f"-{variant}" if variant else ""
        varied += "" if methods is None else "-" + "+".join(own["methods"])
        varied += "-own" if preset.starts and values["initial"] == "own" else ""
        folder = out / RUNS / f"{preset.runs}{dataset}-{count}-seed{seed}{varied}{scale.suffix}"
        config = TrainConfig.resolve({**values, "out": folder}, where=f"the experiment {preset.name!r}")
        apart = [variant if iterations is None else f"{iterations} iterations"]
        apart += [] if methods is None else [", ".join(own["methods"])]
        apart += ["own starts"] if varied.endswith("-own") else []
        runs.append(NeededRun(config, folder, scaled_in_words(config, preset.rounds), ", ".join(filter(None, apart))))
    return runs


def settings(
    preset: Preset, dataset: str, peers: int, seed: int, iterations: int | None = None, variant: str = ""
) -> dict[str, Any]:
    """Return the settings of a run at full size, before defaults are filled in."""
    values = {**preset.train, **preset.variants.get(variant, {}), "dataset": dataset, "peers": peers, "seed": seed}
    if iterations is not None:
        values["iterations"] = iterations
    if iterations == 2:
        # The exact finish needs two, so it is trained beside the authors' two.
        values["methods"] = [*preset.train["methods"], "secured"]
    return values


def examine(run: NeededRun) -> Stage:
    """Tell how far a run is; a run with other settings in its folder is an error."""
    if not (run.folder / CONFIG).is_file():
        return "absent"
    found = changed_settings(read_config(run.folder), run.config)
    if found:
        raise RunFolderError(
            f"{run.folder} holds a run with other settings ({'; '.join(found)}); move it away, or choose another --out"
        )
    last = {row.method: row.round for row in read_rows(run.folder, Row)}
    whole = all(last.get(method) == run.config.rounds for method in run.config.methods)
    return "finished" if whole and _said_to_be_finished(run.folder) else "unfinished"


def _said_to_be_finished(folder: Path) -> bool:
    try:
        return read_summary(folder).finished
    except RunFolderError:
        # none yet, or a damaged one
        return False


def examine_all(runs: Sequence[NeededRun], *, resume: bool = False) -> dict[Path, Stage]:
    """Tell how far each run is, by folder; one that must not be touched is an error that gives the choices."""
    states = {run.folder: examine(run) for run in runs}
    begun = [folder for folder, state in states.items() if state == "unfinished"]
    if begun and not resume:
        raise RunFolderError(
            f"the run in {begun[0]} is unfinished; continue it with --resume, show what is there with "
            "--no-train, or choose another --out"
        )
    return states


def look_first(runs: Sequence[NeededRun], *, resume: bool = False) -> list[NeededRun]:
    """Return the runs that are left; what can be seen to keep them from training is an error.

    That is a run that must not be touched, or a data set that is not there.
    """
    states = examine_all(runs, resume=resume)
    left = [run for run in runs if states[run.folder] != "finished"]
    for name, data_dir in dict.fromkeys((run.config.dataset, run.config.data_dir) for run in left):
        hub = source(name).hub
        if hub is not None:
            hub.check(data_dir)
    return left


def train_missing(runs: Sequence[NeededRun], *, resume: bool = False, watch: Watch | None = None) -> int:
    """Train what is missing and return how many runs that were.

    Everything is examined before anything is trained, so that hours of training never end in an error that was
    there from the start. Ctrl-C leaves what is done, and the run at work can be continued.

    Parameters
    ----------
    runs, resume
        What an experiment needs, and whether unfinished runs are continued; else they are an error.
    watch
        Told whose turn it is; gives the observer of the training.
    """
    left = look_first(runs, resume=resume)
    if not left:
        return 0
    # Late, because torch takes seconds.
    from securedfl.federation.train import resume as continue_run
    from securedfl.federation.train import train
    from securedfl.reporting.report import write_report

    for number, run in enumerate(left, start=1):
        seconds, unknown = forecast(left[number:], runs)
        turn = Turn(run, examine(run), number, len(left), seconds, unknown)
        with watch(turn) if watch else nullcontext(Observer()) as observer:
            if turn.state == "absent":
                train(run.config, observer=observer)
            else:
                free = {key: value for key, value in run.config.to_dict().items() if key in FREE}
                continue_run(run.folder, changes=free, observer=observer)
            write_report(run.folder)
    return len(left)


def forecast(left: Iterable[NeededRun], known: Iterable[NeededRun]) -> tuple[float | None, tuple[str, ...]]:
    """Estimate how long runs will take from the rounds that others with the same data set have taken so far.

    Returns
    -------
    tuple
        Seconds, or None if nothing is known; and the data sets that the estimate leaves out.
    """
    pace: dict[tuple[str, float, float], list[float]] = {}
    for run in known:
        spent = [row.train_seconds + row.average_seconds for row in read_rows(run.folder, Row)]
        pace.setdefault(_kind(run), []).extend(spent)
    total, unknown = 0.0, []
    for run in left:
        if spent := pace.get(_kind(run), []):
            total += sum(spent) / len(spent) * run.config.rounds * len(run.config.methods)
        else:
            unknown.append(run.config.dataset)
    return total or None, tuple(dict.fromkeys(unknown))


def _kind(run: NeededRun) -> tuple[str, float, float]:
    return (run.config.dataset, run.config.fraction, run.config.width)
