"""The paper's Figure 5: test accuracy per round when averages are computed with 1 to 7 iterations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from securedfl.experiments import figures
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
    with_spread,
)
from securedfl.experiments.figures import Curve
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import find, grouped, mean, noise, spread
from securedfl.reporting.units import percent

EXACT = "exact"
"""The key of our exact finish beside the numbers of iterations."""


def collect(preset: Preset, out: Path) -> dict[str, Any]:
    """Return the accuracies per round of all runs found, by number of iterations."""
    cells = []
    for common, runs in grouped(find(preset, out)):
        series: dict[str, dict[str, list[Any]]] = {}
        for run in runs:
            for method, curve in run.curves.items():
                key = EXACT if method == "secured" else str(run.config.iterations)
                own = series.setdefault(key, {"seeds": [], "accuracy": []})
                own["seeds"].append(run.config.seed)
                own["accuracy"].append(curve)
        cells.append({**common, "series": series})
    return {"cells": cells, "iterations": list(preset.iterations)}


def present(data: Mapping[str, Any]) -> Exhibit:
    """Return the curves and whether the number of iterations matters."""
    cells: list[dict[str, Any]] = data["cells"]
    keys = [*map(str, data["iterations"]), EXACT]
    rows = [
        [place(cell), _key(key), *_values(cell["series"].get(key, {}).get("accuracy", [])), scale_of(cell)]
        for cell in cells
        for key in keys
    ]
    charts = [
        _picture(cell, shown)
        for cell in cells
        for shown in (keys, keys[1:])  # the second without one iteration, which squeezes all others
        if set(shown) & set(cell["series"])
    ]
    return Exhibit(
        columns=["Data set", "Iterations", "Best", "Final", "Scale"],
        rows=rows,
        records=round_records(cells, "series", "iterations"),
        findings=[_same(cells, data["iterations"]), _one(cells)],
        figure=charts[0] if charts else None,
        charts=charts,
        notes=_notes(cells, keys),
        scaled=scales(cells),
    )


def _values(curves: Sequence[Sequence[float]]) -> list[str]:
    best, final = [max(curve) for curve in curves], [curve[-1] for curve in curves]
    return [with_spread(mean(best), spread(best)), with_spread(mean(final), spread(final))]


def _best(cell: Mapping[str, Any], key: str) -> float | None:
    curves = cell["series"].get(key, {}).get("accuracy", [])
    return mean([max(curve) for curve in curves]) if curves else None


def _key(key: str) -> str:
    return "2, exact finish" if key == EXACT else key


def _picture(cell: Mapping[str, Any], keys: Sequence[str]) -> Picture:
    curves = [
        Curve(key, "exact finish" if key == EXACT else key, cell["series"][key]["accuracy"])
        for key in keys
        if key in cell["series"]
    ]
    return Picture(
        partial(figures.by_iterations, curves, exact=EXACT),
        "Test accuracy per round by number of iterations" + ("" if keys[0] == "1" else ", without 1"),
        f"{place(cell)}; averages as published with {keys[0]} to {keys[-2]} iterations, and with our exact finish "
        "after 2.",
        "Line chart of test accuracy per round, one line for each number of iterations.",
    )


def _same(cells: Sequence[Mapping[str, Any]], iterations: Sequence[int]) -> Finding:
    """Check that from two iterations on their number makes no difference to the best accuracy."""
    verdicts: list[Verdict] = []
    numbers = []
    for cell in cells:
        found = {n: value for n in iterations if n > 1 and (value := _best(cell, str(n))) is not None}
        if len(found) < 2:
            continue
        low, high = min(found.values()), max(found.values())
        error = noise(high, cell)
        apart = 100 * (high - low)
        verdicts.append(judged(holds=apart <= (2 * error if math.isfinite(error) else 0)))
        numbers.append(
            f"{place(cell)}, {min(found)} to {max(found)} iterations: {percent(low)} to {percent(high)} "
            f"(standard error {error:.2f} points)"
        )
    claim = "More than one iteration makes no difference to the best accuracy (two standard errors)"
    return Finding(claim, overall(verdicts), "; ".join(numbers))


def _one(cells: Sequence[Mapping[str, Any]]) -> Finding:
    """Check that one iteration is not enough."""
    verdicts: list[Verdict] = []
    numbers = []
    for cell in cells:
        one, two = _best(cell, "1"), _best(cell, "2")
        if one is None or two is None:
            continue
        difference = 100 * (one - two)
        error = noise(two, cell)
        verdicts.append(judged(holds=difference < -(2 * error if math.isfinite(error) else 0)))
        numbers.append(f"{place(cell)}: {signed(difference)} points against two iterations")
    return Finding("One iteration is worse than two", overall(verdicts), "; ".join(numbers))


def _notes(cells: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    notes = ["The paper prints these curves without numbers, so that only their course can be compared."]
    for cell in cells:
        missing = [_key(key) for key in keys if key not in cell["series"]]
        if missing:
            notes.append(f"Not finished for {place(cell)}: {', '.join(missing)} iterations.")
    if not cells:
        notes.append("Not run.")
    return notes
