"""Accuracy with differential privacy: the same epsilon with distributed, local and central noise, and without any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import stdev

from securedfl.experiments import paper
from securedfl.experiments.figures import Curve, Panel, panels
from securedfl.experiments.found_runs import Accuracies, ByPlace, Cell, FoundRun, cells, mean
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import Check, Finding, Plot, Result, Tell, round_records, signed, with_spread
from securedfl.federation.run_folder.files import LEDGER, read_object
from securedfl.reporting.page import Table
from securedfl.reporting.units import NONE

LABELS = {
    "none": "no noise",
    "central": "central (a trusted server)",
    "distributed": "distributed",
    "local": "local",
}
"""The variants in the order of the table."""


@dataclass(frozen=True)
class Spent:
    """What a variant spent, and with how much noise."""

    epsilon: float
    noise_multiplier: float
    noise_in_mean: float


@dataclass(frozen=True)
class Gap:
    """A difference of accuracies in points, and its standard error."""

    points: float
    error: float

    def __str__(self) -> str:
        return f"{signed(self.points)} (standard error {self.error:.2f})"


@dataclass(frozen=True)
class PrivacyCell(Cell):
    """A cell with the accuracies and the cost of each variant."""

    variants: Mapping[str, Accuracies]
    spent: Mapping[str, Spent]

    def final(self, variant: str) -> float:
        """Return the accuracy after the last round, the one whose model would be used; NaN if it was not run."""
        return mean(self.variants[variant].final) if variant in self.variants else math.nan

    def gap(self, one: str, other: str) -> Gap:
        """Compare the last models of two variants, seed by seed; NaN if one of them was not run.

        Runs with noise differ more from seed to seed than by their test samples, so both count: the larger one.
        """
        first, second = (
            dict(zip(found.seeds, found.final, strict=True)) if (found := self.variants.get(name)) else {}
            for name in (one, other)
        )
        differences = [100 * (first[seed] - second[seed]) for seed in sorted(first.keys() & second.keys())]
        if not differences:
            return Gap(math.nan, math.nan)
        sampled = self.noise(self.final(other))
        spread = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
        return Gap(mean(differences), max(spread, sampled) if math.isfinite(sampled) else spread)


PrivacyData = ByPlace[PrivacyCell]


def collect(preset: Preset, out: Path, _tell: Tell) -> PrivacyData:
    """Return the accuracies of all runs found, by variant."""
    found = []
    for cell, runs in cells(preset, out):
        own = Accuracies.by_name(runs, lambda run, _method: run.variant)
        spent = {run.variant: _spent(run) for run in runs}
        found.append(PrivacyCell(**vars(cell), variants=own, spent=spent))
    return PrivacyData(found, preset.places)


def _spent(run: FoundRun) -> Spent:
    ledger = read_object(run.folder, LEDGER).get("differential_privacy", {})
    return Spent(
        epsilon=float(ledger.get("epsilon") or math.inf),
        noise_multiplier=float(ledger.get("noise_multiplier", math.nan)),
        noise_in_mean=float(ledger.get("noise_in_mean", math.nan)),
    )


def present(data: PrivacyData) -> Result:
    """Return the table, the curves, and what must hold."""
    rows = []
    for cell in data.cells:
        for variant, label in LABELS.items():
            own, spent = cell.variants.get(variant), cell.spent.get(variant)
            if own is None or spent is None:
                continue
            epsilon = NONE if variant == "none" else f"{spent.epsilon:.3g}"
            noise = NONE if variant == "none" else f"{spent.noise_in_mean:.2g}"
            values = [epsilon, f"{spent.noise_multiplier:.3g}", noise, with_spread(own.final), with_spread(own.best)]
            rows.append([cell.place, label, *values, cell.scale])
    columns = ["Data set", "Noise", "Epsilon", "Multiplier", "In the mean, clips", "Final", "Best", "Scale"]
    shown = _panels(data)
    caption = "The same steps and the same promise; only who adds the noise differs."
    described = "Test accuracy per round with no noise, central, distributed and local noise."
    figure = Plot(
        partial(panels, shown, columns=min(2, max(1, len(shown)))),
        "Accuracy per round at equal epsilon",
        caption,
        described,
    )
    return Result(
        table=Table(columns, rows),
        records=[r for cell in data.cells for r in round_records(cell, "noise", cell.variants)],
        findings=list(_findings(data.cells)),
        notes=[
            "Final accuracy is that of the model that would be used; the best round is chosen with test data. Delta is "
            "1e-5, and any 2 of 9 peers may collude. Differences are in percentage points, seed by seed; the standard "
            "error is that of the spread over seeds, or of the test samples if that is larger.",
            "No noise: the same clipped steps with a millionth of the noise. In the mean: the standard deviation of "
            "the noise in each number of the mean gradient, in parts of the clip.",
        ],
        cells=data.cells,
        figure=figure if data.cells else None,
        charts=[
            Plot(partial(panels, [panel], columns=1, titles=False), panel.title, caption, f"{panel.title}: {described}")
            for panel in shown
        ],
    )


def _panels(data: PrivacyData) -> list[Panel]:
    return [
        Panel(
            paper.name(cell.dataset),
            cell.scaled,
            [Curve(v, LABELS[v], cell.variants[v].accuracy) for v in LABELS if v in cell.variants],
        )
        for cell in data.cells
    ]


def _findings(found: Sequence[PrivacyCell]) -> Iterator[Finding]:
    yield Finding.of("Distributed noise is as accurate as that of a trusted server", _near(found))
    yield Finding.of("Distributed noise is more accurate than local noise", _above(found))
    yield Finding.of("In the mean, local noise is sqrt(members - colluders) times distributed noise", _ratio(found))


def _near(found: Sequence[PrivacyCell]) -> Iterator[Check]:
    for cell in found:
        gap = cell.gap("distributed", "central")
        if math.isfinite(gap.points):
            yield Check(f"{cell.place}: {gap}", gap.points >= -gap.error, abs(gap.points) <= 2 * gap.error)


def _above(found: Sequence[PrivacyCell]) -> Iterator[Check]:
    for cell in found:
        gap = cell.gap("distributed", "local")
        if math.isfinite(gap.points):
            yield Check(f"{cell.place}: {gap}", gap.points > 2 * gap.error, abs(gap.points) <= 2 * gap.error)


def _ratio(found: Sequence[PrivacyCell]) -> Iterator[Check]:
    for cell in found:
        if {"local", "distributed"} <= cell.spent.keys():
            ratio = cell.spent["local"].noise_in_mean / cell.spent["distributed"].noise_in_mean
            wanted = math.sqrt(cell.peers - 2)
            yield Check(f"{cell.place}: {ratio:.2f}, sqrt {wanted:.2f}", abs(ratio / wanted - 1) < 0.05)
