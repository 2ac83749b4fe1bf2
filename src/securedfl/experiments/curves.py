"""The paper's Figure 3: test accuracy per round, a panel for each data set and number of peers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from securedfl.experiments import figures, paper
from securedfl.experiments.exhibit import (
    Exhibit,
    Finding,
    Picture,
    Verdict,
    judged,
    overall,
    place,
    round_records,
    scale_of,
    scales,
    signed,
)
from securedfl.experiments.figures import Curve, Panel
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import find, grouped, mean
from securedfl.experiments.table import COLUMNS
from securedfl.reporting.units import NONE, percent

READING = (
    "Over all peers' own test data. Several seeds: their mean, and a band from the lowest to the highest. "
    "The first rounds may lie below the frame."
)

AVERAGING = ("paper", "secured", "shares")


def collect(preset: Preset, out: Path) -> dict[str, Any]:
    """Return the accuracies per round of all runs found."""
    cells = []
    for common, runs in grouped(find(preset, out)):
        methods = {
            method: {
                "seeds": [run.config.seed for run in runs if method in run.curves],
                "accuracy": [run.curves[method] for run in runs if method in run.curves],
            }
            for method in preset.train["methods"]
        }
        cells.append({**common, "methods": methods})
    return {"cells": cells, "wanted": [[d, p] for p in preset.peers for d in preset.datasets]}


def present(data: Mapping[str, Any]) -> Exhibit:
    """Return the curves as panels, and whether they run as the paper says."""
    cells: list[dict[str, Any]] = data["cells"]
    panels = _panels(data)
    drawn = [panel for panel in panels if panel.curves]
    figure = None
    if drawn:
        figure = Picture(
            partial(figures.panels, panels, columns=_columns(data)),
            "Test accuracy per round",
            READING,
            "Line charts of test accuracy per round: " + "; ".join(panel.title for panel in drawn) + ".",
        )
    return Exhibit(
        columns=[
            "Data set",
            "Peers",
            "Method",
            "Final",
            "Best",
            "Within 1 point of best from round",
            "Scale",
        ],
        rows=_rows(cells),
        records=round_records(cells, "methods", "method"),
        findings=[_follows(cells, method) for method in AVERAGING] + [_lower(cells)],
        figure=figure,
        charts=[
            Picture(
                partial(figures.panels, [panel], columns=1, titles=False),
                panel.title,
                f"Scaled: {panel.scaled}." if panel.scaled else "Full size.",
                f"Line chart of test accuracy per round: {panel.title}.",
            )
            for panel in drawn
        ],
        notes=[
            READING,
            "The paper prints these curves without numbers, so that only their course can be compared.",
        ],
        scaled=scales(cells),
    )


def _panels(data: Mapping[str, Any]) -> list[Panel]:
    """Return a panel for each cell, and an empty one for each that the paper has and nobody ran."""
    places = [(dataset, peers) for dataset, peers in data["wanted"]]
    places += [(cell["dataset"], cell["peers"]) for cell in data["cells"]]
    panels = []
    for dataset, peers in dict.fromkeys(places):
        title = f"{paper.name(dataset)} ({peers} peers)"
        own = [cell for cell in data["cells"] if (cell["dataset"], cell["peers"]) == (dataset, peers)]
        panels += [Panel(title, cell["scaled"], _curves(cell)) for cell in own] or [Panel(title, "", ())]
    return panels


def _curves(cell: Mapping[str, Any]) -> list[Curve]:
    return [
        Curve(method, COLUMNS[method], found["accuracy"])
        for method, found in cell["methods"].items()
        if found["accuracy"]
    ]


def _columns(data: Mapping[str, Any]) -> int:
    """Return how many panels stand side by side: one for each data set, if all were run once, as in the paper."""
    places = [(c["dataset"], c["peers"]) for c in data["cells"]]
    known = all(list(place) in data["wanted"] for place in places) and len(set(places)) == len(places)
    return len({dataset for dataset, _ in data["wanted"]}) if known else 3


def _curve(cell: Mapping[str, Any], method: str) -> list[float]:
    every = cell["methods"].get(method, {}).get("accuracy", [])
    return [mean(values) for values in zip(*every, strict=True)]


def _rows(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = []
    for cell in cells:
        for method in cell["methods"]:
            curve = _curve(cell, method)
            best = max(curve, default=math.nan)
            near = next((r for r, value in enumerate(curve) if value >= best - 0.01), None)
            rows.append(
                [
                    paper.name(cell["dataset"]),
                    str(cell["peers"]),
                    COLUMNS[method],
                    percent(curve[-1]) if curve else NONE,
                    percent(best),
                    NONE if near is None else str(near),
                    scale_of(cell),
                ]
            )
    return rows


def _follows(cells: Sequence[Mapping[str, Any]], method: str) -> Finding:
    """Check that SecureD-FL is never far from FedAvg: on average over the rounds by less than the paper's 1 %."""
    verdicts: list[Verdict] = []
    numbers = []
    for cell in cells:
        ours, theirs = _curve(cell, method)[1:], _curve(cell, "fedavg")[1:]
        if not ours or not theirs:
            continue
        apart = 100 * mean([abs(a - b) for a, b in zip(ours, theirs, strict=True)])
        verdicts.append(judged(holds=apart < paper.ANY_POINTS))
        numbers.append(f"{place(cell)}: {apart:.2f} points")
    claim = f"{COLUMNS[method]} follows FedAvg, on average over the rounds within {paper.ANY_POINTS:g} point"
    return Finding(claim, overall(verdicts), "; ".join(numbers))


def _lower(cells: Sequence[Mapping[str, Any]]) -> Finding:
    """Check that Local-Only ends below FedAvg."""
    verdicts: list[Verdict] = []
    numbers = []
    for cell in cells:
        local, fedavg = _curve(cell, "local"), _curve(cell, "fedavg")
        if local and fedavg:
            verdicts.append(judged(holds=local[-1] < fedavg[-1]))
            numbers.append(f"{place(cell)}: {signed(100 * (local[-1] - fedavg[-1]))} points")
    return Finding("Local-Only ends below FedAvg", overall(verdicts), "; ".join(numbers))
