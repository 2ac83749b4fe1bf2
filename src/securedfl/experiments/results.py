"""What the runs of an experiment gave, read from their folders; what is not finished is left out, never guessed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from securedfl.errors import RunFolderError
from securedfl.experiments.plan import RUNS, differences, settings
from securedfl.experiments.presets import Preset
from securedfl.experiments.scale import told
from securedfl.federation.config import TrainConfig
from securedfl.federation.run_folder.files import CONFIG, read_config
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.run_folder.summary import read_summary

SEQUENCE = 50
"""Characters that a sample of Shakespeare asks for, so that the test set counts so many predictions per sample."""


@dataclass(frozen=True)
class Found:
    """One run of an experiment.

    Attributes
    ----------
    folder, config
        Where it is and what it ran.
    scaled
        How it is smaller than the paper's, in words.
    curves
        Test accuracy from round 0 on, of each method that has finished all its rounds.
    predictions
        How many test predictions each accuracy is over; None while the run is unfinished.
    """

    folder: Path
    config: TrainConfig
    scaled: str
    curves: Mapping[str, list[float]]
    predictions: int | None


def find(preset: Preset, out: Path) -> list[Found]:
    """Return all runs of an experiment in a folder, of whatever scale, in the preset's order.

    A run belongs to the experiment if its settings are the preset's but for data set, peers, seed and scale, whatever
    its folder is called. Folders whose settings cannot be read are somebody else's and are passed over.
    """
    found = []
    for path in sorted((out / RUNS).glob(f"*/{CONFIG}")):
        try:
            config = read_config(path.parent)
        except RunFolderError:
            continue
        if belongs(config, preset):
            found.append(_read(path.parent, config, preset))
    return sorted(found, key=lambda run: _order(run, preset))


def belongs(config: TrainConfig, preset: Preset) -> bool:
    """Tell whether a run's settings are an experiment's, apart from data set, peers, seed and scale."""
    iterations = config.iterations if preset.train_by_iterations else None
    if iterations is not None and iterations not in preset.iterations:
        return False
    values = settings(preset, config.dataset, config.peers, config.seed, iterations)
    values |= {"rounds": config.rounds, "fraction": config.fraction, "width": config.width}
    return not differences(config, TrainConfig.resolve(values))


def grouped(runs: Iterable[Found]) -> list[tuple[dict[str, Any], list[Found]]]:
    """Return runs that differ in nothing but seed (and iterations) together, with what they have in common."""
    groups: dict[tuple[Any, ...], list[Found]] = {}
    for run in runs:
        config = run.config
        key = (config.dataset, config.peers, config.rounds, config.fraction, config.width)
        groups.setdefault(key, []).append(run)
    return [(_common(group), group) for group in groups.values()]


def mean(values: Sequence[float]) -> float:
    """Return the mean over seeds; NaN of nothing."""
    return fmean(values) if values else math.nan


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation over seeds; NaN of fewer than two."""
    return stdev(values) if len(values) > 1 else math.nan


def noise(accuracy: float, cell: Mapping[str, Any]) -> float:
    """Return the standard error of a difference of two accuracies near this one, in points; NaN if unknown.

    The cell tells how many test predictions they are over, for each of its seeds. Both are over the same test set,
    which makes the true error smaller, never larger.
    """
    if not cell["predictions"] or not 0 <= accuracy <= 1:
        return math.nan
    return 100 * math.sqrt(2 * accuracy * (1 - accuracy) / (cell["predictions"] * len(cell["seeds"])))


def _common(runs: Sequence[Found]) -> dict[str, Any]:
    config = runs[0].config
    known = [run.predictions for run in runs if run.predictions is not None]
    return {
        "dataset": config.dataset,
        "peers": config.peers,
        "scaled": runs[0].scaled,
        "rounds": config.rounds,
        "users": config.fraction,
        "width": config.width,
        "seeds": sorted({run.config.seed for run in runs}),
        "predictions": round(fmean(known)) if len(known) == len(runs) else None,
    }


def _read(folder: Path, config: TrainConfig, preset: Preset) -> Found:
    by_method: dict[str, dict[int, float]] = {}
    for row in read_rows(folder, Row):
        by_method.setdefault(row.method, {})[row.round] = row.accuracy
    every = range(config.rounds + 1)
    curves = {
        method: [by_method[method][r] for r in every]
        for method in config.methods
        if sorted(by_method.get(method, ())) == list(every)
    }
    return Found(folder, config, told(config, preset.rounds), curves, _predictions(folder, config))


def _predictions(folder: Path, config: TrainConfig) -> int | None:
    try:
        samples = read_summary(folder).samples.test
    except RunFolderError:
        return None
    return samples * (SEQUENCE if config.dataset == "shakespeare" else 1)


def _order(run: Found, preset: Preset) -> tuple[Any, ...]:
    config = run.config
    known = config.dataset in preset.datasets
    place = preset.datasets.index(config.dataset) if known else len(preset.datasets)
    return (config.peers, place, config.dataset, len(run.scaled), run.scaled, config.iterations, config.seed)
