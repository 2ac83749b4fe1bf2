"""The paper's Table 2: best test accuracy of every method, by data set and number of peers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from securedfl.experiments import paper
from securedfl.experiments.found_runs import Accuracies, ByPlace, Cell, cells, mean
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import Check, Finding, Result, Tell, signed, with_spread
from securedfl.federation.methods import METHODS
from securedfl.reporting.page import Table
from securedfl.reporting.units import NONE, percent

COLUMNS = {
    "local": METHODS["local"].label,
    "fedavg": METHODS["fedavg"].label,
    "paper": "SecureD-FL as published",
    "secured": "SecureD-FL exact",
    "shares": METHODS["shares"].label,
}
"""Our methods in the table's order; the two that differ only in how ADMM ends are named by that."""

AVERAGING = ("paper", "secured", "shares")
"""The methods that the paper's claims about SecureD-FL are checked for."""

PUBLISHED = {"local": "local", "fedavg": "fedavg", "paper": "secured"}
"""Which of the paper's columns stands beside which of ours."""


@dataclass(frozen=True)
class Bests:
    """What one method reached, for each seed."""

    seeds: list[int]
    best: list[float]
    best_round: list[int]
    final: list[float]


@dataclass(frozen=True)
class TableCell(Cell):
    """A cell with what each method reached."""

    methods: Mapping[str, Bests]

    def best(self, method: str) -> float:
        """Return a method's best accuracy over the seeds; NaN if it has not finished."""
        return mean(self.methods[method].best) if method in self.methods else math.nan


TableData = ByPlace[TableCell]


def collect(preset: Preset, out: Path, _tell: Tell) -> TableData:
    """Return the best accuracies of all runs found."""
    found = []
    for cell, runs in cells(preset, out):
        own = Accuracies.by_name(runs, lambda _run, method: method, preset.train["methods"])
        bests = {method: Bests(a.seeds, a.best, a.best_round, a.final) for method, a in own.items()}
        found.append(TableCell(**vars(cell), methods=bests))
    return TableData(found, preset.places)


def present(data: TableData) -> Result:
    """Return the paper's table with ours beside it, and the claims made of it."""
    columns = ["Peers", "Data set"]
    for method, name in COLUMNS.items():
        columns += [f"{name}: paper", f"{name}: ours"] if method in PUBLISHED else [f"{name}: ours"]
    rows, compact = [], []
    for (dataset, peers), own in sorted(data.places.items(), key=lambda place: place[0][1]):
        shown: list[TableCell | None] = [*own]
        for cell in shown or [None]:
            pairs = [_pair(method, dataset, peers, cell) for method in COLUMNS]
            values = [value for pair in pairs for value in pair]
            rows.append([str(peers), paper.name(dataset), *values, cell.scale if cell else NONE])
            place = cell.place if cell else f"{paper.name(dataset)}, {peers} peers"
            compact.append([place, *map(_short, pairs)])
    return Result(
        table=Table([*columns, "Scale"], rows),
        compact=Table(["Data set", *COLUMNS.values()], compact, "in %, ours (the paper's)"),
        records=[record for cell in data.cells for record in _records(cell)],
        findings=list(_findings(data.cells)),
        notes=_notes(data),
        cells=data.cells,
    )


def _pair(method: str, dataset: str, peers: int, cell: TableCell | None) -> list[str]:
    """Return the paper's value, if the paper has such a column, and ours."""
    ours = with_spread(cell.methods[method].best if cell and method in cell.methods else [])
    known = paper.BEST_ACCURACY.get((dataset, peers), {})
    return [percent(known.get(PUBLISHED[method], math.nan)), ours] if method in PUBLISHED else [ours]


def _short(pair: Sequence[str]) -> str:
    """Return ours with the paper's in brackets, without units."""
    *theirs, ours = (value.removesuffix(" %").replace(" ± ", "±") for value in pair)
    return ours + "".join(f" ({value})" for value in theirs)


def _records(cell: TableCell) -> Iterator[dict[str, object]]:
    known = paper.BEST_ACCURACY.get((cell.dataset, cell.peers), {})
    for method, found in cell.methods.items():
        for number, seed in enumerate(found.seeds):
            yield cell.record(
                method=method,
                seed=seed,
                best_accuracy=found.best[number],
                best_round=found.best_round[number],
                final_accuracy=found.final[number],
                paper_best_accuracy=known.get(PUBLISHED.get(method, "")),
            )


def _findings(cells: Sequence[TableCell]) -> Iterator[Finding]:
    for dataset, limit in paper.POINTS.items():
        own = [cell for cell in cells if cell.dataset == dataset]
        for method in AVERAGING:
            claim = f"{COLUMNS[method]} is within {limit:g} points of FedAvg on {paper.name(dataset)}"
            yield Finding.of(claim, _close(own, method, limit))
    yield Finding.of("Local-Only is clearly below FedAvg", _below(cells))
    for dataset in paper.POINTS:
        own = [cell for cell in cells if cell.dataset == dataset]
        yield Finding.of(f"More peers hurt Local-Only on {paper.name(dataset)}", _hurt(own))


def _close(cells: Sequence[TableCell], method: str, limit: float) -> Iterator[Check]:
    """Check that SecureD-FL is as close to FedAvg as in the paper's table."""
    for cell in cells:
        difference = 100 * (cell.best(method) - cell.best("fedavg"))
        if math.isfinite(difference):
            error = cell.noise(cell.best("fedavg"))
            numbers = f"{cell.peers} peers{_scaled(cell)}: {signed(difference)}{_error(error)}"
            yield Check(numbers, abs(difference) <= limit + 1e-9, abs(difference) <= 2 * error)


def _below(cells: Sequence[TableCell]) -> Iterator[Check]:
    """Check that Local-Only is clearly below FedAvg: by more than two standard errors of the test set."""
    for cell in cells:
        fedavg = cell.best("fedavg")
        gap = 100 * (fedavg - cell.best("local"))
        if math.isfinite(gap):
            numbers = f"{cell.place}: {signed(-gap)}{_error(cell.noise(fedavg))}"
            yield Check(numbers, gap > cell.clearly(fedavg), gap > 0)


def _hurt(cells: Sequence[TableCell]) -> Iterator[Check]:
    """Check that more peers, each with less data, hurt Local-Only."""
    own = [cell for cell in cells if math.isfinite(cell.best("local"))]
    for scaled in dict.fromkeys(cell.scaled for cell in own):
        alike = sorted((cell for cell in own if cell.scaled == scaled), key=lambda cell: cell.peers)
        for few, many in itertools.pairwise(alike):
            change = 100 * (many.best("local") - few.best("local"))
            error = few.noise(few.best("local"))
            peers = f"from {few.peers} to {many.peers} peers{_scaled(few)}"
            yield Check(f"{peers}: {signed(change)}{_error(error)}", change < 0, change <= 2 * error)


def _scaled(cell: Cell) -> str:
    return ", scaled" if cell.scaled else ""


def _error(error: float) -> str:
    return f" (standard error {error:.2f})" if math.isfinite(error) else ""


def _notes(data: TableData) -> list[str]:
    notes = [
        "Best accuracy over all rounds, pooled over all peers' own test data, as in the paper. Differences are in "
        "percentage points; the standard error is that of a difference between two models on a test set of this size.",
        "SecureD-FL as published averages with two iterations and the authors' rho, which the paper does not state.",
    ]
    missing = [f"{paper.name(d)} with {p} peers" for (d, p), own in data.places.items() if not own]
    if missing:
        notes.append(f"Not run: {', '.join(missing)}.")
    if any(len(cell.seeds) > 1 for cell in data.cells):
        notes.append("Mean and standard deviation over seeds; CSV has every seed.")
    return notes
