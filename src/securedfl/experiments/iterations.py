"""The paper's Figure 4: error of the average by number of iterations, on parameters from a real training.

The parameters are those of all peers just before an average, every few rounds of a FedAvg training. Each set is
averaged by the very protocol code, and compared with the true mean in float64.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.designs import best
from securedfl.errors import RunFolderError
from securedfl.experiments import figures, paper
from securedfl.experiments.presets import Preset
from securedfl.experiments.results import Check, Finding, Plot, Shown, smaller
from securedfl.experiments.runs.collected import ByIterations, Cell
from securedfl.experiments.runs.found import FoundRun, cells, find, mean, spread
from securedfl.federation.run_folder.files import updates_file
from securedfl.learning.data.hub import Tell
from securedfl.protocols import InsecureSeededDraw, by_name
from securedfl.protocols.admm import AUTHORS
from securedfl.protocols.steps import Array
from securedfl.reporting.page import Table
from securedfl.reporting.units import NONE, scientific
from securedfl.simulation import driver as memory
from securedfl.storage import write_text

METHOD = "fedavg"
GROUP_SIZE = 3
COLLUSION = 1

KINDS = {
    "literal float32": "as published, float32",
    "literal float64": "as published, float64",
    "exact float32": "exact finish, float32",
    "exact float64": "exact finish, float64",
}
"""The ways of averaging with ADMM that are compared, and what people read."""

SHARES = "shares float32"
"""The way of averaging that has no iterations; its errors stand under an empty number of them."""

Errors = dict[str, dict[str, list[float]]]
"""Mean squared errors by way of averaging and number of iterations, one for each checkpoint."""

MEASURED = "averaging.json"
"""Keeps what was measured in the run folder, so that the bulky parameters can be deleted."""

VERSION = 1
"""Of that file: raise it when something else is measured."""


@dataclass(frozen=True)
class Measured:
    """What was measured of one run: with which iterations, at which rounds, over how many parameters."""

    version: int
    iterations: list[int]
    rounds: list[int]
    parameters: int
    mse: Errors


@dataclass(frozen=True, kw_only=True)
class ErrorCell(Cell):
    """A cell with the errors of each seed, and over how many parameters they are."""

    parameters: int
    mse: list[Errors]

    def errors(self, kind: str, iterations: int | str = "") -> list[float]:
        """Return the mean error over checkpoints, for each seed."""
        found = [errors.get(kind, {}).get(str(iterations), []) for errors in self.mse]
        return [mean(values) for values in found if values]

    def error(self, kind: str, iterations: int | str = "") -> float:
        """Return the mean error over checkpoints and seeds; NaN if it was not measured."""
        return mean(self.errors(kind, iterations))


ErrorData = ByIterations[ErrorCell]


def collect(preset: Preset, out: Path, tell: Tell) -> ErrorData:
    """Measure, or recall, the errors of all runs found."""
    found = []
    for cell, runs in cells(preset, out, method=METHOD):
        measured = [_measured(run, preset, tell) for run in runs]
        mse = [own.mse for own in measured]
        found.append(ErrorCell(**vars(cell), parameters=measured[0].parameters, mse=mse))
    return ErrorData(found, preset.places, list(preset.iterations))


def present(data: ErrorData) -> Shown:
    """Return the errors beside the authors', and whether they fall as the paper says."""
    rows, compact = [], []
    for cell in data.cells:
        if len(data.cells) > 1:
            compact.append([cell.place] + [""] * 5)
        for count in data.iterations:
            known = paper.MSE.get(count, math.nan)
            values = [_with_spread(cell.errors(kind, count)) for kind in KINDS]
            rows.append([cell.place, str(count), scientific(known), *values, cell.scale])
            short = [_short(cell.error(kind, count)) for kind in KINDS]
            compact.append([str(count), _short(known), *short])
        shares = _with_spread(cell.errors(SHARES))
        rows.append([cell.place, "shares", NONE, shares, NONE, NONE, NONE, cell.scale])
        compact.append(["shares", NONE, _short(cell.error(SHARES)), NONE, NONE, NONE])
    names = KINDS.values()
    where = data.cells[0].place if len(data.cells) == 1 else "by data set"
    return Shown(
        table=Table(["Data set", "Iterations", "Authors' code", *(f"Ours: {name}" for name in names), "Scale"], rows),
        compact=Table(["Iterations", "Authors'\ncode", *(n.replace(", ", ",\n") for n in names)], compact, where),
        records=[record for cell in data.cells for record in _records(cell)],
        findings=[*_findings(data.judged), *smaller(data.smaller, _findings)],
        notes=[*NOTES, *([] if data.cells else ["Not run."])],
        cells=data.cells,
        figure=_plot(data.cells[0], data.iterations) if data.cells else None,
    )


NOTES = (
    f"Figure 4 of the paper is a curve without numbers; the column of the authors comes from {paper.CODE}, as do the "
    "schedules of rho, one for each number of iterations, with which the last z is the average as published. The paper "
    "states neither. Exact finish: the mean solved from the last two z.",
    "Masks are seeded, so that the numbers can be repeated. The error is against the true mean in float64.",
)


def sizes(preset: Preset, out: Path) -> dict[Path, int]:
    """Return how many bytes of kept parameters each run folder holds."""
    folders = [run.folder / "updates" for run in find(preset, out)]
    files = {folder: list(folder.glob("*.safetensors")) for folder in folders if folder.is_dir()}
    return {folder: sum(path.stat().st_size for path in paths) for folder, paths in files.items()}


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


def errors(parameters: Array, *, iterations: Sequence[int], seed: int, round: int) -> Iterator[tuple[str, str, float]]:
    """Average one set of parameters in every way; give the kind, the iterations and the mean squared error of each.

    Parameters are one float32 row per peer; masks are derived from seed and round.
    """
    design = best(len(parameters), GROUP_SIZE, seed)
    truth = np.mean(parameters, axis=0, dtype=np.float64)

    def measure(rows: Array, protocol: str, **options: Any) -> float:
        outcome = memory.run(
            by_name(protocol).on(design, **options).at(round),
            list(rows),
            draws=lambda peer, offset: InsecureSeededDraw(seed, peer=peer, round=round, offset=offset),
        )
        return float(np.square(outcome.average - truth).mean())

    for dtype in ("float32", "float64"):
        rows = parameters.astype(dtype)
        for count in iterations:
            literal = {"iterations": count, "finish": "literal", "rho": AUTHORS[count]}
            yield f"literal {dtype}", str(count), measure(rows, "paper", **literal)
            # One iteration cannot be solved for the mean.
            if count > 1:
                yield f"exact {dtype}", str(count), measure(rows, "paper", iterations=count)
    yield SHARES, "", measure(parameters, "shares", collusion=COLLUSION)


def _measured(run: FoundRun, preset: Preset, tell: Tell) -> Measured:
    """Return what a run folder says, or measure and keep it there."""
    # Late, because it needs what training needs.
    from securedfl.federation.run_folder.checkpoint import load_parameters

    path = run.folder / MEASURED
    # A short training keeps at least its last round.
    every = min(int(preset.train["keep_updates"]), run.config.rounds)
    rounds = list(range(every, run.config.rounds + 1, every))
    try:
        kept = Measured(**json.loads(path.read_text(encoding="utf-8")))
        if (kept.version, kept.iterations, kept.rounds) == (VERSION, list(preset.iterations), rounds):
            return kept
    except (OSError, ValueError, TypeError):
        pass
    missing = [r for r in rounds if not updates_file(run.folder, METHOD, r).is_file()]
    if missing:
        raise RunFolderError(
            f"{run.folder} does not hold the peers' parameters before the average of round {missing[0]}; "
            "delete that folder to train it again, or choose another --out"
        )
    mse: Errors = {kind: {} for kind in (*KINDS, SHARES)}
    size = 0
    for number, r in enumerate(rounds, start=1):
        tell(f"Averaging checkpoint {number} of {len(rounds)} (round {r}) in every way")
        parameters = load_parameters(updates_file(run.folder, METHOD, r))
        size = parameters.shape[1]
        each = errors(parameters, iterations=preset.iterations, seed=run.config.seed, round=r)
        for kind, count, value in each:
            mse[kind].setdefault(count, []).append(value)
    measured = Measured(VERSION, list(preset.iterations), rounds, size, mse)
    write_text(path, json.dumps(asdict(measured), indent=2) + "\n")
    return measured


def _with_spread(values: Sequence[float]) -> str:
    deviation = f" ± {spread(values):.0e}" if len(values) > 1 else ""
    return scientific(mean(values)) + deviation


def _short(value: float) -> str:
    return f"{value:.1e}" if math.isfinite(value) else NONE


def _records(cell: ErrorCell) -> Iterator[dict[str, object]]:
    for seed, by_kind in zip(cell.seeds, cell.mse, strict=True):
        for kind, by_iterations in by_kind.items():
            for count, values in by_iterations.items():
                known = paper.MSE.get(int(count or 0))
                for number, value in enumerate(values, start=1):
                    averaged = {"averaging": kind, "iterations": count, "seed": seed, "checkpoint": number}
                    yield cell.record(**averaged, mse=value, authors_code_mse=known)


def _plot(cell: ErrorCell, iterations: Sequence[int]) -> Plot:
    lines = {
        name: [(count, cell.error(kind, count)) for count in iterations if cell.errors(kind, count)]
        for kind, name in KINDS.items()
    }
    lines["the authors' code"] = sorted(paper.MSE.items())
    return Plot(
        partial(figures.errors, lines, level=cell.error(SHARES), level_name="shares"),
        "Mean squared error by number of iterations",
        f"{cell.place}; mean over checkpoints of one training. Lower is better.",
        "Line chart of the mean squared error of the average by number of iterations, on a logarithmic scale.",
    )


def _findings(cells: Sequence[ErrorCell]) -> list[Finding]:
    falls = "The error decreases fast with the number of iterations (to a tenth or less with each, up to 4)"
    small = f"After 4 iterations the error is below {scientific(paper.MSE_AFTER_FOUR)}"
    exact = "Ours: two iterations with the exact finish beat two as published"
    return [
        Finding.of(falls, map(_falls, cells)),
        Finding.of(small, map(_small, cells)),
        Finding.of(exact, map(_exact, cells)),
    ]


def _falls(cell: ErrorCell) -> Check:
    """Check that the error falls fast with the iterations: by a factor 10 at least, up to the fourth."""
    values = [cell.error("literal float32", count) for count in (1, 2, 3, 4)]
    fast = all(after < before / 10 for before, after in itertools.pairwise(values))
    return Check.of(f"{cell.place}: " + ", ".join(map(scientific, values)), holds=fast)


def _small(cell: ErrorCell) -> Check:
    """Check the error after four iterations, which the authors computed in float32: of every checkpoint, or of none."""
    each = [value for errors in cell.mse for value in errors["literal float32"]["4"]]
    double = scientific(cell.error("literal float64", 4))
    spread = f"{scientific(min(each))} to {scientific(max(each))} over {len(each)} checkpoints"
    numbers = f"{cell.place}, float32: {scientific(mean(each))}, {spread}; float64: {double}"
    small = {value < paper.MSE_AFTER_FOUR for value in each}
    return Check(numbers, "not decided" if len(small) > 1 else "holds" if small.pop() else "differs")


def _exact(cell: ErrorCell) -> Check:
    """Check that two iterations with the exact finish are more accurate than two of the paper's."""
    ours, theirs = (cell.error(f"{finish} float32", 2) for finish in ("exact", "literal"))
    return Check.of(f"{cell.place}: {scientific(ours)} against {scientific(theirs)}", holds=ours < theirs)
