"""What the runs of an experiment gave, read from their folders; what is not finished is left out, never guessed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from securedfl.errors import RunFolderError
from securedfl.experiments.presets import Preset, scaled_in_words
from securedfl.experiments.runs.collected import Cell
from securedfl.experiments.runs.training import RUNS, settings
from securedfl.federation.config import TrainConfig
from securedfl.federation.identity import changed_settings
from securedfl.federation.run_folder.correctness import Correct, Which, read_correct
from securedfl.federation.run_folder.files import CONFIG, read_config
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.run_folder.summary import read_summary
from securedfl.sureness import Difference, Pair, compare


@dataclass(frozen=True)
class FoundRun:
    """One run: the accuracies from round 0 on of each method that has finished.

    ``wanted`` are the methods that the experiment compares, of which the run may have fewer. ``variant`` is which of
    the preset's it is, if it has any; ``versions`` are those of what trained it.
    """

    folder: Path
    config: TrainConfig
    scaled: str
    curves: Mapping[str, list[float]]
    wanted: Sequence[str]
    variant: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all methods that are wanted have finished."""
        return set(self.wanted) <= set(self.curves)

    @property
    def only(self) -> list[str]:
        """Its methods, if they have finished and the experiment has more."""
        own = list(self.config.methods)
        return own if set(own) == set(self.curves) < set(self.wanted) else []

    def correct(self, method: str, which: Which) -> Correct | None:
        """Return which test predictions a method's model got right; None if that is not known."""
        curve = self.curves.get(method)
        if not curve:
            return None
        round = len(curve) - 1 if which == "final" else curve.index(max(curve))
        return read_correct(self.folder, method, which, round)


@dataclass(frozen=True)
class Accuracies:
    """Test accuracies from round 0 on, one list for each seed."""

    seeds: list[int]
    accuracy: list[list[float]]

    @property
    def curve(self) -> list[float]:
        """Accuracy per round, as the mean over the seeds."""
        return [mean(values) for values in zip(*self.accuracy, strict=True)]

    @property
    def best(self) -> list[float]:
        """The best accuracy, for each seed."""
        return [max(values) for values in self.accuracy]

    @property
    def best_round(self) -> list[int]:
        """The round of the best accuracy, for each seed."""
        return [values.index(max(values)) for values in self.accuracy]

    @property
    def final(self) -> list[float]:
        """The accuracy after the last round, for each seed."""
        return [values[-1] for values in self.accuracy]

    @classmethod
    def by_name(
        cls, runs: Iterable[FoundRun], name: Callable[[FoundRun, str], str], known: Iterable[str] = ()
    ) -> dict[str, Accuracies]:
        """Return those of runs by the name that a run and a method give them; known names are always there."""
        found = {key: cls([], []) for key in known}
        for run in runs:
            for method, curve in run.curves.items():
                own = found.setdefault(name(run, method), cls([], []))
                own.seeds.append(run.config.seed)
                own.accuracy.append(curve)
        return found


NOTHING = Accuracies([], [])


def find(preset: Preset, out: Path) -> list[FoundRun]:
    """Return all runs of an experiment in a folder, of whatever scale, in the preset's order.

    A run belongs to the experiment if its settings are the preset's but for data set, peers, seed, scale and start,
    whatever its folder is called. Folders whose settings cannot be read are somebody else's and are passed over.
    """
    found = []
    for path in sorted((out / RUNS).glob(f"*/{CONFIG}")):
        try:
            config = read_config(path.parent)
        except RunFolderError:
            continue
        for variant in preset.variants or ("",):
            if _belongs(config, preset, variant):
                found.append(_read(path.parent, config, preset, variant))
    return sorted(found, key=lambda run: _order(run, preset))


def cells(preset: Preset, out: Path, *, method: str | None = None) -> list[tuple[Cell, list[FoundRun]]]:
    """Return the cells of an experiment in a folder, each with its runs; only those that have finished a method.

    Where some runs of a cell have finished all methods, others are left out: means are over the same seeds then.
    """
    groups: dict[tuple[Any, ...], list[FoundRun]] = {}
    for run in find(preset, out):
        if run.curves if method is None else method in run.curves:
            groups.setdefault(tuple(_common(run).values()), []).append(run)
    found = [[run for run in runs if run.whole] or runs for runs in groups.values()]
    for runs in found:
        _check_different(runs)
    return [(_cell(runs), runs) for runs in found]


def merged(versions: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return versions of packages, several of one listed."""
    found: dict[str, dict[str, None]] = {}
    for one in versions:
        for package, version in one.items():
            found.setdefault(package, {})[version] = None
    return {package: ", ".join(several) for package, several in sorted(found.items())}


def _cell(runs: Sequence[FoundRun]) -> Cell:
    return Cell(
        **_common(runs[0]),
        seeds=sorted({run.config.seed for run in runs}),
        whole=any(run.whole for run in runs),
        only=runs[0].only,
        versions=merged(run.versions for run in runs),
    )


def _check_different(runs: Iterable[FoundRun]) -> None:
    """Refuse a run that is there twice: it would count as two seeds."""
    known: dict[tuple[Any, ...], Path] = {}
    for run in runs:
        own = (run.config.seed, run.config.iterations, run.variant)
        if own in known:
            raise RunFolderError(
                f"{known[own]} and {run.folder} are the same run, with seed {run.config.seed}; move one of them away"
            )
        known[own] = run.folder


def differences(pairs: Iterable[tuple[FoundRun, str, FoundRun, str]], which: Which) -> Difference | None:
    """Compare the models of two runs and methods, for each seed; None if it is not known what all of them got right.

    Both must have been scored on the same test samples, as runs with the same data, peers and seed are.
    """
    found = []
    for first_run, first, second_run, second in pairs:
        one, other = first_run.correct(first, which), second_run.correct(second, which)
        if one is None or other is None or not np.array_equal(one.tested.samples, other.tested.samples):
            return None
        found.append(Pair.of(one.right, other.right, one.tested.users, one.tested.samples))
    return compare(found) if found else None


def mean(values: Sequence[float]) -> float:
    """Return the mean over seeds; NaN of nothing."""
    return fmean(values) if values else math.nan


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation over seeds; NaN of fewer than two."""
    return stdev(values) if len(values) > 1 else math.nan


def _belongs(config: TrainConfig, preset: Preset, variant: str) -> bool:
    """Tell whether a run's settings are an experiment's, apart from data set, peers, seed, scale, start and device.

    It may have fewer methods, if it compares some.
    """
    if preset.train_by_iterations and config.iterations not in preset.iterations:
        return False
    values = _settings(config, preset, variant)
    values |= {"rounds": config.rounds, "fraction": config.fraction, "width": config.width, "device": config.device}
    if preset.starts:
        values["initial"] = config.initial
    if len(config.methods) > 1:
        values["methods"] = [method for method in values["methods"] if method in config.methods]
    return not changed_settings(config, TrainConfig.resolve(values))


def _settings(config: TrainConfig, preset: Preset, variant: str) -> dict[str, Any]:
    """Return an experiment's settings at the place of a run."""
    iterations = config.iterations if preset.train_by_iterations else None
    return settings(preset, config.dataset, config.peers, config.seed, iterations, variant)


def _common(run: FoundRun) -> dict[str, Any]:
    """Return what all runs of a cell have in common."""
    config = run.config
    size = {"scaled": run.scaled, "rounds": config.rounds, "users": config.fraction, "width": config.width}
    return {"dataset": config.dataset, "peers": config.peers, "initial": config.initial, **size}


def _read(folder: Path, config: TrainConfig, preset: Preset, variant: str) -> FoundRun:
    by_method: dict[str, dict[int, float]] = {}
    for row in read_rows(folder, Row):
        by_method.setdefault(row.method, {})[row.round] = row.accuracy
    every = range(config.rounds + 1)
    scaled = scaled_in_words(config, preset.rounds)
    curves = {
        method: [by_method[method][r] for r in every]
        for method in config.methods
        if sorted(by_method.get(method, ())) == list(every)
    }
    versions: Mapping[str, str] = {}
    with suppress(RunFolderError):
        # an unfinished run has no summary
        versions = read_summary(folder).versions
    wanted = _settings(config, preset, variant)["methods"]
    return FoundRun(folder, config, scaled, curves, wanted, variant, versions)


def _order(run: FoundRun, preset: Preset) -> tuple[Any, ...]:
    config = run.config
    known = config.dataset in preset.datasets
    place = preset.datasets.index(config.dataset) if known else len(preset.datasets)
    size = (config.initial, len(run.scaled), run.scaled)
    return (config.peers, place, config.dataset, *size, config.iterations, config.seed)
