"""Test accuracy per round: by data set and number of peers (Figure 3), and by number of iterations (Figure 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from securedfl.experiments import figures, paper
from securedfl.experiments.figures import Curve, Panel
from securedfl.experiments.judging import Rule, below, judged, within
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import Check, Finding, Plot, Shown, round_records, smaller, with_spread
from securedfl.experiments.runs.collected import ByIterations, ByPlace, Cell
from securedfl.experiments.runs.found import NOTHING, Accuracies, FoundRun, cells, differences, mean
from securedfl.experiments.table import AVERAGING, COLUMNS, against_fedavg
from securedfl.learning.data.hub import Tell
from securedfl.reporting.page import Table
from securedfl.reporting.units import NONE, percent
from securedfl.sureness import Difference

READING = (
    "Over all peers' own test data. Several seeds: their mean, and a band from the lowest to the highest. "
    "The first rounds may lie below the frame."
)

ONLY_COURSE = "The paper prints these curves without numbers, so that only their course can be compared."

EXACT = "exact"
"""The key of our exact finish beside the numbers of iterations."""


@dataclass(frozen=True, kw_only=True)
class MethodsCell(Cell):
    """A cell with the accuracies of each method, and how much more accurate than FedAvg's their last models are."""

    methods: Mapping[str, Accuracies]
    against: Mapping[str, Difference] = field(default_factory=dict)

    def curve(self, method: str) -> list[float]:
        """Return a method's accuracy per round, as the mean over the seeds."""
        return self.methods.get(method, NOTHING).curve


@dataclass(frozen=True, kw_only=True)
class IterationsCell(Cell):
    """A cell with the accuracies of each number of iterations, and how much better their best models are than two's."""

    series: Mapping[str, Accuracies]
    against: Mapping[str, Difference] = field(default_factory=dict)

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
        found.append(MethodsCell(**vars(cell), methods=methods, against=against_fedavg(runs, COLUMNS, "final")))
    return MethodsData(found, preset.places)


def collect_by_iterations(preset: Preset, out: Path, _tell: Tell) -> IterationsData:
    """Return the accuracies per round of all runs found, by number of iterations."""
    found = []
    for cell, runs in cells(preset, out):
        series = Accuracies.by_name(
            runs, lambda run, method: EXACT if method == "secured" else str(run.config.iterations)
        )
        found.append(IterationsCell(**vars(cell), series=series, against=_against_two(runs)))
    return IterationsData(found, preset.places, list(preset.iterations))


def _against_two(runs: Sequence[FoundRun]) -> dict[str, Difference]:
    """Return how much more accurate each number of iterations is than two, as published."""
    by_seed = {(run.config.iterations, run.config.seed): run for run in runs if "paper" in run.curves}
    found = {}
    for count in {count for count, _ in by_seed} - {2}:
        seeds = [seed for number, seed in by_seed if number == count]
        if all((2, seed) in by_seed for seed in seeds):
            pairs = [(by_seed[count, seed], "paper", by_seed[2, seed], "paper") for seed in seeds]
            found[str(count)] = differences(pairs, "best")
    return {count: difference for count, difference in found.items() if difference is not None}


def present_by_method(data: MethodsData) -> Shown:
    """Return the curves as panels, and whether they run as the paper says."""
    panels = [panel for (dataset, peers), own in data.places.items() for panel in _panels(dataset, peers, own)]
    drawn = [panel for panel in panels if panel.curves]
    described = "Line charts of test accuracy per round: " + "; ".join(panel.title for panel in drawn) + "."
    make = partial(figures.panels, panels, columns=_columns(data))
    near = "Within 1 point of best from round"
    return Shown(
        table=Table(
            ["Data set", "Peers", "Method", "Final", "Best", near, "Scale"],
            [_row(cell, method) for cell in data.cells for method in cell.methods],
        ),
        records=[row for cell in data.cells for row in round_records(cell, "method", cell.methods)],
        findings=[
            *_by_method(data, data.judged),
            *smaller(data.smaller, lambda cells: _by_method(data, cells)),
        ],
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


def present_by_iterations(data: IterationsData) -> Shown:
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
    return Shown(
        table=Table(["Data set", "Iterations", "Best", "Final", "Scale"], rows),
        records=[row for cell in data.cells for row in round_records(cell, "iterations", cell.series)],
        findings=[
            *_by_iterations(data, data.judged),
            *smaller(data.smaller, lambda cells: _by_iterations(data, cells)),
        ],
        notes=[ONLY_COURSE, *(missing if data.cells else ["Not run."])],
        cells=data.cells,
        figure=charts[0] if charts else None,
        charts=charts,
    )


def _by_method(data: MethodsData, cells: Sequence[MethodsCell]) -> Iterator[Finding]:
    """Judge where curves end."""

    def missing(method: str) -> list[str]:
        if cells == data.judged:
            return data.not_run(method=method)
        # of what is smaller only the data sets that were run count as missing
        return sorted(place for name in {cell.dataset for cell in cells} for place in data.not_run(name, cells, method))

    limit, close = paper.ANY_POINTS, partial(within, limit=paper.ANY_POINTS)
    for method in AVERAGING:
        claim = f"{COLUMNS[method]} ends within {limit:g} point of FedAvg"
        yield Finding.of(claim, _ends(cells, method, close), missing(method))
    yield Finding.of("Local-Only ends below FedAvg", _ends(cells, "local", below), missing("local"))


def _by_iterations(data: IterationsData, cells: Sequence[IterationsCell]) -> Iterator[Finding]:
    """Judge whether the number of iterations matters."""
    close = partial(within, limit=paper.ANY_POINTS)
    more = [count for count in data.iterations if count > 2]
    absent = [f"{count} iterations" for count in more if any(str(count) not in cell.series for cell in cells)]
    claim = f"More than two iterations are within {paper.ANY_POINTS:g} point of two in best accuracy"
    yield Finding.of(claim, [check for count in more for check in _counted(cells, count, close)], absent)
    yield Finding.of("One iteration is worse than two", _counted(cells, 1, below))


def _panels(dataset: str, peers: int, cells: Sequence[MethodsCell]) -> list[Panel]:
    """Return a panel for each cell, or an empty one if the paper has it and nobody ran it."""
    title = f"{paper.name(dataset)} ({peers} peers)"
    panels = []
    for cell in cells:
        found = [(name, own.accuracy) for name, own in cell.methods.items() if own.accuracy]
        curves = [Curve(name, COLUMNS[name], accuracy) for name, accuracy in found]
        apart = ", ".join(filter(None, [cell.scaled, "own starts" if cell.initial == "own" else ""]))
        panels.append(Panel(title, apart, curves))
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


def _ends(cells: Sequence[MethodsCell], method: str, rule: Rule) -> Iterator[Check]:
    """Judge how far a method's last model is from FedAvg's."""
    both = [(cell, cell.curve(method), cell.curve("fedavg")) for cell in cells]
    ended = [(cell.place, 100 * (a[-1] - b[-1]), cell.against.get(method)) for cell, a, b in both if a and b]
    return judged(ended, rule)


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


def _counted(cells: Sequence[IterationsCell], count: int, rule: Rule) -> Iterator[Check]:
    """Judge how far a number of iterations is from two."""
    points = [100 * (cell.best(count) - cell.best(2)) for cell in cells]
    places = [f"{cell.place}, {count} against 2" for cell in cells]
    found = [cell.against.get(str(count)) for cell in cells]
    return judged(zip(places, points, found, strict=True), rule)
