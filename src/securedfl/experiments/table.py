"""The paper's Table 2: best test accuracy of every method, by data set and number of peers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from securedfl.experiments import paper
from securedfl.experiments.exhibit import (
    Exhibit,
    Finding,
    Verdict,
    judged,
    overall,
    place,
    scale_of,
    scales,
    signed,
    with_spread,
)
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import find, grouped, mean, noise, spread
from securedfl.reporting.units import percent

COLUMNS = {
    "local": "Local-Only",
    "fedavg": "FedAvg",
    "paper": "SecureD-FL as published",
    "secured": "SecureD-FL exact",
    "shares": "SecureD-FL shares",
}
"""Our methods in the table's order."""

PUBLISHED = {"local": "local", "fedavg": "fedavg", "paper": "secured"}
"""Which of the paper's columns stands beside which of ours."""


def collect(preset: Preset, out: Path) -> dict[str, Any]:
    """Return the best accuracies of all runs found, and what is missing."""
    cells = []
    for common, runs in grouped(find(preset, out)):
        methods = {
            method: {
                "seeds": [run.config.seed for run in runs if method in run.curves],
                "best": [max(run.curves[method]) for run in runs if method in run.curves],
                "best_round": [
                    run.curves[method].index(max(run.curves[method])) for run in runs if method in run.curves
                ],
                "final": [run.curves[method][-1] for run in runs if method in run.curves],
            }
            for method in preset.train["methods"]
        }
        cells.append({**common, "methods": methods})
    return {"cells": cells, "wanted": [[d, p] for p in preset.peers for d in preset.datasets]}


def present(data: Mapping[str, Any]) -> Exhibit:
    """Return the paper's table with ours beside it, and the claims made of it."""
    cells: list[dict[str, Any]] = data["cells"]
    columns = ["Peers", "Data set"]
    for method, name in COLUMNS.items():
        columns += [f"{name}: paper", f"{name}: ours"] if method in PUBLISHED else [f"{name}: ours"]
    columns.append("Scale")
    rows, compact = [], []
    for peers, dataset in _places(data):
        own: list[dict[str, Any] | None] = [
            cell for cell in cells if (cell["dataset"], cell["peers"]) == (dataset, peers)
        ]
        for cell in own or [None]:
            rows.append([str(peers), paper.name(dataset), *_values(dataset, peers, cell), scale_of(cell)])
            where = cell or {"dataset": dataset, "peers": peers, "scaled": ""}
            compact.append([place(where), *_pairs(dataset, peers, cell)])
    return Exhibit(
        columns=columns,
        rows=rows,
        records=_records(cells),
        findings=[*_close(cells), _below(cells), *_hurt(cells)],
        notes=_notes(data),
        scaled=scales(cells),
        compact=("in %, ours (the paper's)", ["Data set", *COLUMNS.values()], compact),
    )


def best(cell: Mapping[str, Any], method: str) -> float:
    """Return a method's best accuracy in a cell, over the seeds; NaN if it has not finished."""
    return mean(cell["methods"].get(method, {}).get("best", []))


def _places(data: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return all rows' peers and data sets, those of the paper and any others that were run, in order."""
    wanted = [(peers, dataset) for dataset, peers in data["wanted"]]
    others = [(cell["peers"], cell["dataset"]) for cell in data["cells"]]
    return sorted(dict.fromkeys([*wanted, *others]), key=lambda where: where[0])


def _values(dataset: str, peers: int, cell: Mapping[str, Any] | None) -> list[str]:
    values = []
    for method in COLUMNS:
        if method in PUBLISHED:
            known = paper.BEST_ACCURACY.get((dataset, peers), {})
            values.append(percent(known.get(PUBLISHED[method], math.nan)))
        measured = cell["methods"].get(method, {}).get("best", []) if cell else []
        values.append(with_spread(mean(measured), spread(measured)))
    return values


def _pairs(dataset: str, peers: int, cell: Mapping[str, Any] | None) -> list[str]:
    """Return ours with the paper's in brackets, without units."""
    pairs, values = (
        [],
        [value.removesuffix(" %").replace(" ± ", "±") for value in _values(dataset, peers, cell)],
    )
    for method in COLUMNS:
        theirs = f" ({values.pop(0)})" if method in PUBLISHED else ""
        pairs.append(values.pop(0) + theirs)
    return pairs


def _records(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    records = []
    for cell in cells:
        known = paper.BEST_ACCURACY.get((cell["dataset"], cell["peers"]), {})
        for method, found in cell["methods"].items():
            for seed, value, at, final in zip(
                found["seeds"], found["best"], found["best_round"], found["final"], strict=True
            ):
                records.append(
                    {
                        "dataset": cell["dataset"],
                        "peers": cell["peers"],
                        "scaled": cell["scaled"],
                        "method": method,
                        "seed": seed,
                        "best_accuracy": value,
                        "best_round": at,
                        "final_accuracy": final,
                        "paper_best_accuracy": known.get(PUBLISHED.get(method, "")),
                    }
                )
    return records


def _close(cells: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Check that SecureD-FL is as close to FedAvg as in the paper's table."""
    findings = []
    for dataset, limit in paper.POINTS.items():
        for method in ("paper", "secured", "shares"):
            verdicts: list[Verdict] = []
            numbers = []
            for cell in cells:
                difference = 100 * (best(cell, method) - best(cell, "fedavg"))
                if cell["dataset"] != dataset or not math.isfinite(difference):
                    continue
                error = noise(best(cell, "fedavg"), cell)
                close = abs(difference) <= limit + 1e-9
                verdicts.append(judged(holds=close, noise=abs(difference) <= 2 * error))
                scaled = ", scaled" if cell["scaled"] else ""
                numbers.append(f"{cell['peers']} peers{scaled}: {signed(difference)}{_error(error)}")
            claim = f"{COLUMNS[method]} is within {limit:g} points of FedAvg on {paper.name(dataset)}"
            findings.append(Finding(claim, overall(verdicts), "; ".join(numbers)))
    return findings


def _below(cells: Sequence[Mapping[str, Any]]) -> Finding:
    """Check that Local-Only is clearly below FedAvg: by more than two standard errors of the test set."""
    verdicts: list[Verdict] = []
    numbers = []
    for cell in cells:
        gap = 100 * (best(cell, "fedavg") - best(cell, "local"))
        if not math.isfinite(gap):
            continue
        error = noise(best(cell, "fedavg"), cell)
        clearly = gap > (2 * error if math.isfinite(error) else 0)
        verdicts.append(judged(holds=clearly, noise=gap > 0))
        numbers.append(f"{place(cell)}: {signed(-gap)}" + _error(error))
    return Finding("Local-Only is clearly below FedAvg", overall(verdicts), "; ".join(numbers))


def _hurt(cells: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Check that more peers, each with less data, hurt Local-Only."""
    findings = []
    for dataset in paper.POINTS:
        verdicts: list[Verdict] = []
        numbers = []
        own = [c for c in cells if c["dataset"] == dataset and math.isfinite(best(c, "local"))]
        for scaled in dict.fromkeys(cell["scaled"] for cell in own):
            alike = sorted((c for c in own if c["scaled"] == scaled), key=lambda c: c["peers"])
            for few, many in itertools.pairwise(alike):
                change = 100 * (best(many, "local") - best(few, "local"))
                error = noise(best(few, "local"), few)
                verdicts.append(judged(holds=change < 0, noise=change <= 2 * error))
                label = ", scaled" if scaled else ""
                numbers.append(
                    f"from {few['peers']} to {many['peers']} peers{label}: {signed(change)}{_error(error)}"
                )
        claim = f"More peers hurt Local-Only on {paper.name(dataset)}"
        findings.append(Finding(claim, overall(verdicts), "; ".join(numbers)))
    return findings


def _error(error: float) -> str:
    return f" (standard error {error:.2f})" if math.isfinite(error) else ""


def _notes(data: Mapping[str, Any]) -> list[str]:
    notes = [
        "Best accuracy over all rounds, pooled over all peers' own test data, as in the paper. Differences are in "
        "percentage points; the standard error is that of a difference between two models on a test set of this size.",
        "SecureD-FL as published averages with two iterations and the authors' rho, which the paper does not state.",
    ]
    present_cells = {(cell["dataset"], cell["peers"]) for cell in data["cells"]}
    missing = [
        f"{paper.name(dataset)} with {peers} peers"
        for dataset, peers in data["wanted"]
        if (dataset, peers) not in present_cells
    ]
    if missing:
        notes.append(f"Not run: {', '.join(missing)}.")
    if any(len(cell["seeds"]) > 1 for cell in data["cells"]):
        notes.append("Mean and standard deviation over seeds; CSV has every seed.")
    return notes
