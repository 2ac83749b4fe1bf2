"""The paper's Figure 4: error of the average by number of iterations, on parameters from a real training.

The parameters are those of all peers just before an average, every few rounds of a FedAvg training. Each set is
averaged by the very protocol code, and compared with the true mean in float64.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.designs import best
from securedfl.errors import RunFolderError
from securedfl.experiments import figures, paper
from securedfl.experiments.exhibit import (
    Exhibit,
    Finding,
    Picture,
    Verdict,
    judged,
    overall,
    place,
    scale_of,
    scales,
)
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import Found, find, grouped, mean, spread
from securedfl.federation.run_folder.files import updates_file
from securedfl.protocols import InsecureSeededDraw, by_name
from securedfl.protocols.admm import AUTHORS
from securedfl.protocols.steps import Array
from securedfl.reporting.units import NONE, scientific
from securedfl.simulation import driver as memory
from securedfl.storage import write_text

METHOD = "fedavg"
GROUP_SIZE = 3
COLLUSION = 1

Tell = Callable[[str], None]

KINDS = {
    "literal float32": "as published, float32",
    "literal float64": "as published, float64",
    "exact float32": "exact finish, float32",
    "exact float64": "exact finish, float64",
    "shares float32": "shares",
}
"""The ways of averaging that are compared, and what people read."""

MEASURED = "averaging.json"
"""Keeps what was measured in the run folder, so that the bulky parameters can be deleted."""

VERSION = 1
"""Of that file: raise it when something else is measured."""


def collect(preset: Preset, out: Path, tell: Tell = lambda _text: None) -> dict[str, Any]:
    """Measure, or recall, the errors of all runs found."""
    cells = []
    whole = [run for run in find(preset, out) if METHOD in run.curves]
    for common, runs in grouped(whole):
        measured = [_measured(run, preset, tell) for run in runs]
        mse = [entry["mse"] for entry in measured]
        cells.append({**common, "parameters": measured[0]["parameters"], "mse": mse})
    return {"cells": cells, "iterations": list(preset.iterations)}


def present(data: Mapping[str, Any]) -> Exhibit:
    """Return the errors beside the authors', and whether they fall as the paper says."""
    cells: list[dict[str, Any]] = data["cells"]
    rows = []
    for cell in cells:
        for iterations in data["iterations"]:
            values = [_text(_over_seeds(cell, kind, iterations)) for kind in KINDS if "shares" not in kind]
            known = scientific(paper.MSE.get(iterations, math.nan))
            rows.append([place(cell), str(iterations), known, *values, scale_of(cell)])
        rows.append([place(cell), "shares", NONE, *_shares_row(cell), scale_of(cell)])
    names = [name for kind, name in KINDS.items() if "shares" not in kind]
    return Exhibit(
        columns=["Data set", "Iterations", "Paper", *(f"Ours: {name}" for name in names), "Scale"],
        rows=rows,
        records=_records(cells),
        findings=[_falls(cells), _small(cells), _exact(cells)],
        figure=_picture(cells, data["iterations"]) if cells else None,
        notes=_notes(cells),
        scaled=scales(cells),
        compact=_compact(cells, data["iterations"]),
    )


def sizes(preset: Preset, out: Path) -> dict[Path, int]:
    """Return how many bytes of kept parameters each run folder holds."""
    folders = [found.folder / "updates" for found in find(preset, out)]
    return {
        folder: sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        for folder in folders
        if folder.is_dir()
    }


def tidy(preset: Preset, out: Path) -> int:
    """Delete kept parameters whose errors have been measured, and return how many bytes that freed."""
    freed = 0
    for folder, size in sizes(preset, out).items():
        if (folder.parent / MEASURED).is_file():
            for path in folder.glob("*.safetensors"):
                path.unlink()
            folder.rmdir()
            freed += size
    return freed


def checkpoints(rounds: int, every: int) -> list[int]:
    """Return the rounds whose parameters are kept; a short training keeps at least its last."""
    return list(range(every, rounds + 1, every))


def errors(
    parameters: Array, *, iterations: Sequence[int], seed: int, round: int
) -> dict[str, dict[str, float]]:
    """Average one set of parameters in every way and return the mean squared errors by kind and iterations.

    Parameters
    ----------
    parameters
        One float32 row per peer.
    iterations
        Numbers of ADMM iterations.
    seed, round
        What the masks are derived from.
    """
    design = best(len(parameters), GROUP_SIZE, seed)
    truth = np.mean(parameters, axis=0, dtype=np.float64)
    result: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}

    def measure(rows: Array, protocol: str, **options: Any) -> float:
        outcome = memory.run(
            partial(by_name(protocol), design=design, round=round, **options),
            list(rows),
            draws=lambda peer, offset: InsecureSeededDraw(seed, peer=peer, round=round, offset=offset),
        )
        return float(np.square(outcome.average - truth).mean())

    for dtype in ("float32", "float64"):
        rows = parameters.astype(dtype)
        for count in iterations:
            literal = {"iterations": count, "finish": "literal", "rho": AUTHORS[count]}
            result[f"literal {dtype}"][str(count)] = measure(rows, "grouped", **literal)
            if count > 1:  # one iteration cannot be solved for the mean
                result[f"exact {dtype}"][str(count)] = measure(rows, "grouped", iterations=count)
    result["shares float32"][""] = measure(parameters, "shares", collusion=COLLUSION)
    return result


def _measured(found: Found, preset: Preset, tell: Tell) -> dict[str, Any]:
    """Return what a run folder says, or measure and keep it there."""
    from securedfl.federation.run_folder.checkpoint import load_parameters  # late: needs what training needs

    path = found.folder / MEASURED
    rounds = checkpoints(found.config.rounds, _every(found, preset))
    about = {"version": VERSION, "iterations": list(preset.iterations), "rounds": rounds}
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if {key: kept.get(key) for key in about} == about:
            return kept
    except (OSError, ValueError, AttributeError):
        pass
    missing = [r for r in rounds if not updates_file(found.folder, METHOD, r).is_file()]
    if missing:
        raise RunFolderError(
            f"{found.folder} does not hold the peers' parameters before the average of round {missing[0]}; "
            "delete that folder to train it again, or choose another --out"
        )
    mse: dict[str, dict[str, list[float]]] = {}
    size = 0
    for number, r in enumerate(rounds, start=1):
        tell(f"Averaging checkpoint {number} of {len(rounds)} (round {r}) in every way")
        parameters = load_parameters(updates_file(found.folder, METHOD, r))
        size = parameters.shape[1]
        each = errors(parameters, iterations=preset.iterations, seed=found.config.seed, round=r)
        for kind, by_iterations in each.items():
            for count, value in by_iterations.items():
                mse.setdefault(kind, {}).setdefault(count, []).append(value)
    measured = {**about, "parameters": size, "mse": mse}
    write_text(path, json.dumps(measured, indent=2) + "\n")
    return measured


def _every(found: Found, preset: Preset) -> int:
    """Return the rounds between checkpoints: the preset's, or all of a training that is shorter than that."""
    return min(int(preset.train["keep_updates"]), found.config.rounds)


def _over_seeds(cell: Mapping[str, Any], kind: str, iterations: int | str) -> list[float]:
    """Return the mean error over checkpoints, for each seed."""
    values = [seed.get(kind, {}).get(str(iterations), []) for seed in cell["mse"]]
    return [mean(each) for each in values if each]


def _text(values: Sequence[float]) -> str:
    if not values:
        return NONE
    deviation = spread(values)
    return scientific(mean(values)) + (f" ± {deviation:.0e}" if math.isfinite(deviation) else "")


def _compact(
    cells: Sequence[Mapping[str, Any]], iterations: Sequence[int]
) -> tuple[str, list[str], list[list[str]]]:
    """Return the table with short numbers; where there are several cells, a line names each."""
    rows = []
    for cell in cells:
        if len(cells) > 1:
            rows.append([place(cell)] + [""] * 5)
        for count in iterations:
            known = f"{paper.MSE[count]:.1e}" if count in paper.MSE else NONE
            rows.append([str(count), known, *_short(cell, [k for k in KINDS if "shares" not in k], count)])
        rows.append(["shares", NONE, *_short(cell, ["shares float32"], ""), NONE, NONE, NONE])
    names = [name.replace(", ", ",\n") for kind, name in KINDS.items() if "shares" not in kind]
    where = place(cells[0]) if len(cells) == 1 else "by data set"
    return where, ["Iterations", "Paper", *names], rows


def _short(cell: Mapping[str, Any], kinds: Sequence[str], count: int | str) -> list[str]:
    found = [_over_seeds(cell, kind, count) for kind in kinds]
    return [f"{mean(values):.1e}" if values else NONE for values in found]


def _shares_row(cell: Mapping[str, Any]) -> list[str]:
    return [_text(_over_seeds(cell, "shares float32", "")), NONE, NONE, NONE]


def _records(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "dataset": cell["dataset"],
            "peers": cell["peers"],
            "scaled": cell["scaled"],
            "averaging": kind,
            "iterations": count,
            "seed": seed,
            "checkpoint": number,
            "mse": value,
            "paper_mse": paper.MSE.get(int(count or 0)),
        }
        for cell in cells
        for seed, by_kind in zip(cell["seeds"], cell["mse"], strict=True)
        for kind, by_iterations in by_kind.items()
        for count, values in by_iterations.items()
        for number, value in enumerate(values, start=1)
    ]


def _picture(cells: Sequence[Mapping[str, Any]], iterations: Sequence[int]) -> Picture:
    cell = cells[0]
    lines = {
        KINDS[kind]: [
            (count, mean(values)) for count in iterations if (values := _over_seeds(cell, kind, count))
        ]
        for kind in KINDS
        if "shares" not in kind
    }
    lines["the authors'"] = sorted(paper.MSE.items())
    level = mean(_over_seeds(cell, "shares float32", ""))
    return Picture(
        partial(figures.errors, lines, level=level, level_name="shares"),
        "Mean squared error by number of iterations",
        f"{place(cell)}; mean over checkpoints of one training. Lower is better.",
        "Line chart of the mean squared error of the average by number of iterations, on a logarithmic scale.",
    )


def _falls(cells: Sequence[Mapping[str, Any]]) -> Finding:
    """Check that the error falls fast with the iterations: by a factor 10 at least, up to the fourth."""
    verdicts: list[Verdict] = []
    numbers = []
    for cell in cells:
        values = [mean(_over_seeds(cell, "literal float32", count)) for count in (1, 2, 3, 4)]
        fast = all(after < before / 10 for before, after in itertools.pairwise(values))
        verdicts.append(judged(holds=fast))
        numbers.append(f"{place(cell)}: " + ", ".join(scientific(value) for value in values))
    claim = "The error decreases fast with the number of iterations (to a tenth or less with each, up to 4)"
    return Finding(claim, overall(verdicts), "; ".join(numbers))


def _small(cells: Sequence[Mapping[str, Any]]) -> Finding:
    """Check the error after four iterations."""
    verdicts: list[Verdict] = []
    numbers = []
    for cell in cells:
        for dtype in ("float32", "float64"):
            value = mean(_over_seeds(cell, f"literal {dtype}", 4))
            if dtype == "float32":
                verdicts.append(judged(holds=value < paper.MSE_AFTER_FOUR))
            numbers.append(f"{place(cell)}, {dtype}: {scientific(value)}")
    claim = f"After 4 iterations the error is below {scientific(paper.MSE_AFTER_FOUR)}"
    return Finding(claim, overall(verdicts), "; ".join(numbers))


def _exact(cells: Sequence[Mapping[str, Any]]) -> Finding:
    """Check that two iterations with the exact finish are more accurate than two of the paper's."""
    verdicts: list[Verdict] = []
    numbers = []
    for cell in cells:
        ours = mean(_over_seeds(cell, "exact float32", 2))
        theirs = mean(_over_seeds(cell, "literal float32", 2))
        verdicts.append(judged(holds=ours < theirs))
        numbers.append(f"{place(cell)}: {scientific(ours)} against {scientific(theirs)}")
    claim = "Ours: two iterations with the exact finish beat two as published"
    return Finding(claim, overall(verdicts), "; ".join(numbers))


def _notes(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = [
        "As published: the last z, with the authors' schedule of rho for each number of iterations, which the paper "
        "does not state. Exact finish: the mean solved from the last two z.",
        "Masks are seeded, so that the numbers can be repeated. The error is against the true mean in float64.",
    ]
    if not cells:
        notes.append("Not run.")
    return notes
