"""The paper's Table 2: best test accuracy of every method, by data set and number of peers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from securedfl.experiments import paper
from securedfl.experiments.judging import Rule, above, below, judged, within
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import Check, Finding, Shown, smaller, with_spread
from securedfl.experiments.runs.collected import ByPlace, Cell
from securedfl.experiments.runs.found import Accuracies, FoundRun, cells, differences, mean
from securedfl.federation.methods import METHODS
from securedfl.federation.run_folder.correctness import Which
from securedfl.learning.data.hub import Tell
from securedfl.reporting.page import Table
from securedfl.reporting.units import NONE, percent
from securedfl.sureness import ByUser, Difference, contrast

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
class Fewer:
    """By how much Local-Only is more accurate than with fewer peers; no interval if it is not known what was right."""

    peers: int
    points: float
    difference: Difference | None


@dataclass(frozen=True, kw_only=True)
class TableCell(Cell):
    """A cell with what each method reached.

    Attributes
    ----------
    methods
        By name.
    against
        How much more accurate methods are than FedAvg at their best, where it was kept what they got right.
    fewer
        Local-Only here and with fewer peers, if that was run alike.
    """

    methods: Mapping[str, Bests]
    against: Mapping[str, Difference] = field(default_factory=dict)
    fewer: Fewer | None = None

    def best(self, method: str) -> float:
        """Return a method's best accuracy over the seeds; NaN if it has not finished."""
        return mean(self.methods[method].best) if method in self.methods else math.nan

    def by_seed(self, method: str) -> dict[int, float]:
        """Return a method's best accuracy of each seed with which it has finished."""
        found = self.methods.get(method)
        return {} if found is None else dict(zip(found.seeds, found.best, strict=True))


TableData = ByPlace[TableCell]


def collect(preset: Preset, out: Path, _tell: Tell) -> TableData:
    """Return the best accuracies of all runs found, and how sure their differences are."""
    found: list[tuple[TableCell, list[FoundRun]]] = []
    for cell, runs in cells(preset, out):
        own = Accuracies.by_name(runs, lambda _run, method: method, preset.train["methods"])
        bests = {method: Bests(a.seeds, a.best, a.best_round, a.final) for method, a in own.items()}
        made = TableCell(**vars(cell), methods=bests, against=against_fedavg(runs, COLUMNS, "best"))
        for few, few_runs in found:
            # of the paper's numbers of peers only, which are two
            both = {(one.dataset, one.peers) for one in (few, made)} <= set(preset.places)
            if both and _kind(few) == _kind(made) and few.peers < made.peers:
                made = replace(made, fewer=_fewer(made, runs, few, few_runs))
        found.append((made, runs))
    return TableData([cell for cell, _ in found], preset.places)


def against_fedavg(runs: Sequence[FoundRun], methods: Iterable[str], which: Which) -> dict[str, Difference]:
    """Return how much more accurate methods are than FedAvg, where it was kept what all models got right."""
    found = {
        method: differences(
            [(run, method, run, "fedavg") for run in runs if {method, "fedavg"} <= run.curves.keys()], which
        )
        for method in methods
        if method != "fedavg"
    }
    return {method: difference for method, difference in found.items() if difference is not None}


def _kind(cell: Cell) -> tuple[object, ...]:
    """Return what two cells must have in common to differ in the number of peers alone."""
    return (cell.dataset, cell.scaled, cell.initial, cell.rounds, cell.users, cell.width)


def _fewer(cell: TableCell, runs: Sequence[FoundRun], few: TableCell, few_runs: Sequence[FoundRun]) -> Fewer | None:
    """Compare Local-Only with itself at fewer peers, on the seeds that both have; test samples are not the same."""
    here, there = (one.by_seed("local") for one in (cell, few))
    seeds = [seed for seed in here if seed in there]
    if not seeds:
        return None
    points = 100 * mean([here[seed] - there[seed] for seed in seeds])
    ours, theirs = ({run.config.seed: run.correct("local", "best") for run in own} for own in (runs, few_runs))
    pairs = [(ours[seed], theirs[seed]) for seed in seeds]
    known = [(ByUser.of(a.right, a.tested.users), ByUser.of(b.right, b.tested.users)) for a, b in pairs if a and b]
    whole = len(known) == len(seeds)
    difference = contrast([one for one, _ in known], [other for _, other in known]) if whole else None
    return Fewer(few.peers, points, difference)


def present(data: TableData) -> Shown:
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
            start = cell.initial if cell else NONE
            rows.append([str(peers), paper.name(dataset), *values, start, cell.scale if cell else NONE])
            place = cell.place if cell else f"{paper.name(dataset)}, {peers} peers"
            compact.append([place, *map(_short, pairs)])
    return Shown(
        table=Table([*columns, "Start", "Scale"], rows),
        compact=Table(["Data set", *COLUMNS.values()], compact, "in %, ours (the paper's)"),
        records=[record for cell in data.cells for record in _records(cell)],
        findings=list(_findings(data)),
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
            against = cell.against.get(method)
            yield cell.record(
                method=method,
                seed=seed,
                best_accuracy=found.best[number],
                best_round=found.best_round[number],
                final_accuracy=found.final[number],
                paper_best_accuracy=known.get(PUBLISHED.get(method, "")),
                points_against_fedavg=against and against.points,
                low=against and against.low,
                high=against and against.high,
                mcnemar_p=against and against.p,
            )


def _findings(data: TableData) -> Iterator[Finding]:
    yield from _claims(data, data.judged)
    for method in AVERAGING:
        claim = f"{COLUMNS[method]} is less than {paper.ANY_POINTS:g} point below FedAvg in all cases"
        rule = partial(above, limit=-paper.ANY_POINTS)
        yield Finding.of(claim, _judged(data.judged, method, rule), data.not_run(method=method))
    local = data.not_run(method="local")
    yield Finding.of("Local-Only is below FedAvg", _judged(data.judged, "local", below), local)
    yield from smaller(data.smaller, partial(_claims, data))


def _claims(data: TableData, cells: Sequence[TableCell]) -> Iterator[Finding]:
    """Judge the claims about one data set each."""
    for dataset, limit in paper.POINTS.items():
        own = [cell for cell in cells if cell.dataset == dataset]
        missing, name = partial(data.not_run, dataset, own), paper.name(dataset)
        for method in AVERAGING:
            claim = f"{COLUMNS[method]} is within {limit:g} points of FedAvg on {name}"
            yield Finding.of(claim, _judged(own, method, partial(within, limit=limit)), missing(method))
        yield Finding.of(f"Local-Only is below FedAvg on {name}", _judged(own, "local", below), missing("local"))
        yield Finding.of(f"More peers hurt Local-Only on {name}", _hurt(own))


def _judged(cells: Sequence[TableCell], method: str, rule: Rule) -> Iterator[Check]:
    """Judge a method's difference from FedAvg in each cell."""
    points = [100 * (cell.best(method) - cell.best("fedavg")) for cell in cells]
    return judged([(c.place, p, c.against.get(method)) for c, p in zip(cells, points, strict=True)], rule)


def _hurt(cells: Sequence[TableCell]) -> Iterator[Check]:
    """Check that more peers, each with less data, hurt Local-Only."""
    known = [(cell, cell.fewer) for cell in cells if cell.fewer is not None]
    return judged(
        [(f"from {few.peers} to {cell.peers} peers{cell.marks}", few.points, few.difference) for cell, few in known],
        below,
    )


def _notes(data: TableData) -> list[str]:
    notes = [
        "Best accuracy over all rounds, pooled over all peers' own test data, as in the paper. Differences are in "
        "percentage points, with an interval of 95 % from a bootstrap over users, and over seeds if there are several; "
        "a claim holds or differs only if its whole interval does. With one seed the interval is that of these models, "
        "not of trainings like them, and so is the verdict. The best round is chosen with test data, for all methods "
        "alike.",
        f"SecureD-FL as published averages with two iterations and the rho of {paper.CODE}; the paper states none.",
        f"Start: common, one model for all peers, as in {paper.CODE}; own, each peer's, averaged (Algorithm 3 to the "
        "letter), which is shown and not judged.",
    ]
    if missing := data.not_run():
        notes.append(f"Not run in full: {', '.join(missing)}.")
    if data.smaller:
        notes.append("What is scaled decides no claim of the paper's, and is judged apart.")
    if any(len(cell.seeds) > 1 for cell in data.cells):
        notes.append(
            "Mean and standard deviation over seeds; CSV has every seed. An interval over two seeds is mostly wider "
            "than that of one: it is for other trainings, too, of which two tell little."
        )
    return notes
