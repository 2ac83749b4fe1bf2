"""Test accuracy per round: by data set and number of peers (Figure 3), and by number of iterations (Figure 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from securedfl.experiments import figures, paper
from securedfl.experiments.figures import Curve, Panel
from securedfl.experiments.found_runs import NOTHING, Accuracies, ByIterations, ByPlace, Cell, cells, mean
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import (
    Check,
    Finding,
    Plot,
    Result,
    Tell,
    round_records,
    signed,
    with_spread,
)
from securedfl.experiments.table import AVERAGING, COLUMNS
from securedfl.reporting.page import Table
from securedfl.reporting.units import NONE, percent

READING = (
    "Over all peers' own test data. Several seeds: their mean, and a band from the lowest to the highest. "
    "The first rounds may lie below the frame."
)

ONLY_COURSE = "The paper prints these curves without numbers, so that only their course can be compared."

EXACT = "exact"
"""The key of our exact finish beside the numbers of iterations."""


@dataclass(frozen=True)
class MethodsCell(Cell):
    """A cell with the accuracies of each method."""

    methods: Mapping[str, Accuracies]

    def curve(self, method: str) -> list[float]:
        """Return a method's accuracy per round, as the mean over the seeds."""
        return self.methods.get(method, NOTHING).curve


@dataclass(frozen=True)
class IterationsCell(Cell):
    """A cell with the accuracies of each number of iterations."""

    series: Mapping[str, Accuracies]

    def best(self, iterations: int) -> float:
        """Return the best accuracy over the seeds; NaN if it has not finished."""
        return mean(self.series.get(str(iterations), NOTHING).best)


MethodsData = ByPlace[MethodsCell]
IterationsData = ByIterations[IterationsCell]


def collect_by_method(preset: Preset, out: Path, _tell: Tell) -> MethodsData:
    """Return the accuracies per round of all runs found, by method."""
    found = []
    for cell, runs in cells(preset, out):
        methods = Accuracies.by_name(runs, lambda _run, method: method, preset.train["methods"])
        found.append(MethodsCell(**vars(cell), methods=methods))
    return MethodsData(found, preset.places)


def collect_by_iterations(preset: Preset, out: Path, _tell: Tell) -> IterationsData:
    """Return the accuracies per round of all runs found, by number of iterations."""
    found = []
    for cell, runs in cells(preset, out):
        series = Accuracies.by_name(
            runs, lambda run, method: EXACT if method == "secured" else str(run.config.iterations)
        )
        found.append(IterationsCell(**vars(cell), series=series))
    return IterationsData(found, list(preset.iterations))


def present_by_method(data: MethodsData) -> Result:
    """Return the curves as panels, and whether they run as the paper says."""
    panels = [panel for (dataset, peers), own in data.places.items() for panel in _panels(dataset, peers, own)]
    drawn = [panel for panel in panels if panel.curves]
    described = "Line charts of test accuracy per round: " + "; ".join(panel.title for panel in drawn) + "."
    make = partial(figures.panels, panels, columns=_columns(data))
    near = "Within 1 point of best from round"
    limit = f"on average over the rounds within {paper.ANY_POINTS:g} point"
    follows = [
        Finding.of(f"{COLUMNS[method]} follows FedAvg, {limit}", _follows(data.cells, method)) for method in AVERAGING
    ]
    return Result(
        table=Table(
            ["Data set", "Peers", "Method", "Final", "Best", near, "Scale"],
            [_row(cell, method) for cell in data.cells for method in cell.methods],
        ),
        records=[row for cell in data.cells for row in round_records(cell, "method", cell.methods)],
        findings=[*follows, Finding.of("Local-Only ends below FedAvg", _lower(data.cells))],
        notes=[READING, ONLY_COURSE],
        cells=data.cells,
        figure=Plot(make, "Test accuracy per round", READING, described) if drawn else None,
        charts=[
            Plot(
                partial(figures.panels, [panel], columns=1, titles=False),
                panel.title,
                f"Scaled: {panel.scaled}." if panel.scaled else "Full size.",
                f"Line chart of test accuracy per round: {panel.title}.",
            )
            for panel in drawn
        ],
    )


def present_by_iterations(data: IterationsData) -> Result:
    """Return the curves and whether the number of iterations matters."""
    keys = [*map(str, data.iterations), EXACT]
    rows, charts, missing = [], [], []
    for cell in data.cells:
        for key in keys:
            found = cell.series.get(key, NOTHING)
            rows.append([cell.place, _key(key), with_spread(found.best), with_spread(found.final), cell.scale])
        # One iteration squeezes all others, so they are also drawn without it.
        charts += [_plot(cell, shown) for shown in (keys, keys[1:]) if set(shown) & set(cell.series)]
        absent = [_key(key) for key in keys if key not in cell.series]
        if absent:
            missing.append(f"Not finished for {cell.place}: {', '.join(absent)} iterations.")
    same = "More than one iteration makes no difference to the best accuracy (two standard errors)"
    return Result(
        table=Table(["Data set", "Iterations", "Best", "Final", "Scale"], rows),
        records=[row for cell in data.cells for row in round_records(cell, "iterations", cell.series)],
        findings=[
            Finding.of(same, _same(data.cells, data.iterations)),
            Finding.of("One iteration is worse than two", _one(data.cells)),
        ],
        notes=[ONLY_COURSE, *(missing if data.cells else ["Not run."])],
        cells=data.cells,
        figure=charts[0] if charts else None,
        charts=charts,
    )


def _panels(dataset: str, peers: int, cells: Sequence[MethodsCell]) -> list[Panel]:
    """Return a panel for each cell, or an empty one if the paper has it and nobody ran it."""
    title = f"{paper.name(dataset)} ({peers} peers)"
    panels = []
    for cell in cells:
        found = [(name, own.accuracy) for name, own in cell.methods.items() if own.accuracy]
        curves = [Curve(name, COLUMNS[name], accuracy) for name, accuracy in found]
        panels.append(Panel(title, cell.scaled, curves))
    return panels or [Panel(title, "", ())]


def _columns(data: MethodsData) -> int:
    """Return how many panels stand side by side: one for each data set, if all were run once, as in the paper."""
    as_paper = set(data.places) == set(data.wanted) and all(len(own) < 2 for own in data.places.values())
    return len({dataset for dataset, _ in data.wanted}) if as_paper else 3


def _row(cell: MethodsCell, method: str) -> list[str]:
    curve, peers = cell.curve(method), str(cell.peers)
    best = max(curve, default=math.nan)
    near = next((str(r) for r, value in enumerate(curve) if value >= best - 0.01), NONE)
    final = percent(curve[-1] if curve else math.nan)
    return [paper.name(cell.dataset), peers, COLUMNS[method], final, percent(best), near, cell.scale]


def _follows(cells: Sequence[MethodsCell], method: str) -> Iterator[Check]:
    """Check that SecureD-FL is never far from FedAvg: on average over the rounds by less than the paper's 1 %."""
    for cell in cells:
        ours, theirs = cell.curve(method)[1:], cell.curve("fedavg")[1:]
        if ours and theirs:
            apart = 100 * mean([abs(a - b) for a, b in zip(ours, theirs, strict=True)])
            yield Check(f"{cell.place}: {apart:.2f} points", apart < paper.ANY_POINTS)


def _lower(cells: Sequence[MethodsCell]) -> Iterator[Check]:
    """Check that Local-Only ends below FedAvg."""
    for cell in cells:
        local, fedavg = cell.curve("local"), cell.curve("fedavg")
        if local and fedavg:
            difference = signed(100 * (local[-1] - fedavg[-1]))
            yield Check(f"{cell.place}: {difference} points", local[-1] < fedavg[-1])


def _key(key: str) -> str:
    return "2, exact finish" if key == EXACT else key


def _plot(cell: IterationsCell, keys: Sequence[str]) -> Plot:
    found = [(key, cell.series[key].accuracy) for key in keys if key in cell.series]
    curves = [Curve(key, "exact finish" if key == EXACT else key, accuracy) for key, accuracy in found]
    return Plot(
        partial(figures.by_iterations, curves, exact=EXACT),
        "Test accuracy per round by number of iterations" + ("" if keys[0] == "1" else ", without 1"),
        f"{cell.place}; averages as published with {keys[0]} to {keys[-2]} iterations, and with our exact finish "
        "after 2.",
        "Line chart of test accuracy per round, one line for each number of iterations.",
    )


def _same(cells: Sequence[IterationsCell], iterations: Sequence[int]) -> Iterator[Check]:
    """Check that from two iterations on their number makes no difference to the best accuracy."""
    for cell in cells:
        bests = {n: cell.best(n) for n in iterations if n > 1 and str(n) in cell.series}
        if len(bests) > 1:
            low, high = min(bests.values()), max(bests.values())
            counts = f"{cell.place}, {min(bests)} to {max(bests)} iterations"
            error = f"(standard error {cell.noise(high):.2f} points)"
            numbers = f"{counts}: {percent(low)} to {percent(high)} {error}"
            yield Check(numbers, 100 * (high - low) <= cell.clearly(high))


def _one(cells: Sequence[IterationsCell]) -> Iterator[Check]:
    """Check that one iteration is not enough."""
    for cell in cells:
        difference = 100 * (cell.best(1) - cell.best(2))
        if math.isfinite(difference):
            numbers = f"{cell.place}: {signed(difference)} points against two iterations"
            yield Check(numbers, difference < -cell.clearly(cell.best(2)))
