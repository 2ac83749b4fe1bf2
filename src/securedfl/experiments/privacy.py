"""Accuracy with differential privacy: the same epsilon with distributed, local and central noise, and without any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from securedfl.experiments import paper
from securedfl.experiments.figures import Curve, Panel, panels
from securedfl.experiments.judging import Rule, above, judged
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import Check, Finding, Plot, Shown, round_records, smaller, with_spread
from securedfl.experiments.runs.collected import ByPlace, Cell
from securedfl.experiments.runs.found import Accuracies, FoundRun, cells, differences, mean
from securedfl.federation.run_folder.files import read_ledgers
from securedfl.learning.data.hub import Tell
from securedfl.reporting.page import Table
from securedfl.reporting.units import NONE
from securedfl.sureness import Difference

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


@dataclass(frozen=True, kw_only=True)
class PrivacyCell(Cell):
    """A cell with accuracies and cost of each variant, and how much better distributed noise ends than another."""

    variants: Mapping[str, Accuracies]
    spent: Mapping[str, Spent]
    against: Mapping[str, Difference] = field(default_factory=dict)

    def final(self, variant: str) -> float:
        """Return the accuracy after the last round, the one whose model would be used; NaN if it was not run."""
        return mean(self.variants[variant].final) if variant in self.variants else math.nan


PrivacyData = ByPlace[PrivacyCell]


def collect(preset: Preset, out: Path, _tell: Tell) -> PrivacyData:
    """Return the accuracies of all runs found, by variant."""
    found = []
    for cell, runs in cells(preset, out):
        own = Accuracies.by_name(runs, lambda run, _method: run.variant)
        spent = {run.variant: _spent(run) for run in runs}
        against = {other: _against(runs, other) for other in ("central", "local")}
        known = {other: difference for other, difference in against.items() if difference is not None}
        found.append(PrivacyCell(**vars(cell), variants=own, spent=spent, against=known))
    return PrivacyData(found, preset.places)


def _against(runs: Sequence[FoundRun], other: str) -> Difference | None:
    """Return how much more accurate distributed noise ends than another variant, if both have the same seeds."""
    ours, theirs = ({run.config.seed: run for run in runs if run.variant == name} for name in ("distributed", other))
    if ours.keys() != theirs.keys():
        return None
    return differences([(run, "secured", theirs[seed], "secured") for seed, run in ours.items()], "final")


def _spent(run: FoundRun) -> Spent:
    promise = next(iter(read_ledgers(run.folder).values())).differential_privacy
    if promise is None:
        return Spent(epsilon=math.inf, noise_multiplier=math.nan, noise_in_mean=math.nan)
    return Spent(
        epsilon=promise.epsilon or math.inf,
        noise_multiplier=promise.noise_multiplier,
        noise_in_mean=promise.noise_in_mean,
    )


def present(data: PrivacyData) -> Shown:
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
    return Shown(
        table=Table(columns, rows),
        records=[r for cell in data.cells for r in round_records(cell, "noise", cell.variants)],
        findings=list(_by_scale(data.cells)),
        notes=[
            "Final accuracy is that of the model that would be used; the best round is chosen with test data. Delta is "
            "1e-5, and any 2 of 9 peers may collude. Differences are in percentage points.",
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


def _by_scale(found: Sequence[PrivacyCell]) -> Iterator[Finding]:
    """Judge what is of full size, and apart what is smaller."""
    scaled = {cell.scaled: [one for one in found if one.scaled == cell.scaled] for cell in found if cell.scaled}
    yield from _findings([cell for cell in found if not cell.scaled])
    yield from smaller(scaled, _findings)


def _findings(found: Sequence[PrivacyCell]) -> Iterator[Finding]:
    claim = f"Distributed noise is less than {paper.ANY_POINTS:g} point below that of a trusted server"
    yield Finding.of(claim, _judged(found, "central", partial(above, limit=-paper.ANY_POINTS)))
    yield Finding.of("Distributed noise is more accurate than local noise", _judged(found, "local", above))
    yield Finding.of("In the mean, local noise is sqrt(members - colluders) times distributed noise", _ratio(found))


def _judged(found: Sequence[PrivacyCell], other: str, rule: Rule) -> Iterator[Check]:
    points = [100 * (cell.final("distributed") - cell.final(other)) for cell in found]
    return judged([(c.place, p, c.against.get(other)) for c, p in zip(found, points, strict=True)], rule)


def _ratio(found: Sequence[PrivacyCell]) -> Iterator[Check]:
    for cell in found:
        if {"local", "distributed"} <= cell.spent.keys():
            ratio = cell.spent["local"].noise_in_mean / cell.spent["distributed"].noise_in_mean
            wanted = math.sqrt(cell.peers - 2)
            told = f"{cell.place}: {ratio:.2f}, sqrt {wanted:.2f}"
            yield Check.of(told, holds=abs(ratio / wanted - 1) < 0.05)
