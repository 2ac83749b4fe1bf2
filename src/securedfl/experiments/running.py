"""Run what a plan needs: finished runs are reused, unfinished ones continued if the user wants it, others trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from securedfl.errors import RunFolderError
from securedfl.experiments.plan import Cell, differences
from securedfl.federation.config import FREE, TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.files import CONFIG, read_config
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.run_folder.summary import read_summary

State = Literal["absent", "unfinished", "finished"]


@dataclass(frozen=True)
class Turn:
    """The cell whose turn it is.

    Attributes
    ----------
    cell, state
        What is trained or continued.
    number, count
        Which one it is of those that need training.
    seconds_after
        How long the cells after this one will take, as far as others tell; None if nothing is known yet.
    unknown
        Data sets of later cells that nothing is known of.
    """

    cell: Cell
    state: State
    number: int
    count: int
    seconds_after: float | None
    unknown: tuple[str, ...]


Watch = Callable[[Turn], AbstractContextManager[Observer]]
"""Gives the observer of each training."""


def examine(cell: Cell) -> State:
    """Tell how far a cell's run is; a run with other settings in its folder is an error."""
    if not (cell.folder / CONFIG).is_file():
        return "absent"
    found = differences(read_config(cell.folder), cell.config)
    if found:
        raise RunFolderError(
            f"{cell.folder} holds a run with other settings ({'; '.join(found)}); "
            "move it away, or choose another --out"
        )
    return "finished" if finished(cell.folder, cell.config) else "unfinished"


def examine_all(cells: Sequence[Cell], *, resume: bool = False) -> dict[Path, State]:
    """Tell how far each run is, by folder; one that must not be touched is an error that gives the choices."""
    states = {cell.folder: examine(cell) for cell in cells}
    begun = [folder for folder, state in states.items() if state == "unfinished"]
    if begun and not resume:
        raise RunFolderError(
            f"the run in {begun[0]} is unfinished; continue it with --resume, show what is there with "
            "--no-train, or choose another --out"
        )
    return states


def finished(folder: Path, config: TrainConfig) -> bool:
    """Tell whether every method has all its rounds and the summary says so too."""
    try:
        summary = read_summary(folder)
    except RunFolderError:
        return False
    last = {row.method: row.round for row in read_rows(folder, Row)}
    return summary.finished and all(last.get(method) == config.rounds for method in config.methods)


def run_cells(cells: Sequence[Cell], *, resume: bool = False, watch: Watch | None = None) -> int:
    """Train what is missing and return how many runs that were.

    Everything is examined before anything is trained, so that hours of training never end in an error that was
    there from the start. Ctrl-C leaves what is done, and the run at work can be continued.

    Parameters
    ----------
    cells
        The plan.
    resume
        Continue unfinished runs; else they are an error.
    watch
        Told whose turn it is; gives the observer of the training.
    """
    states = examine_all(cells, resume=resume)
    left = [cell for cell in cells if states[cell.folder] != "finished"]
    if not left:
        return 0
    from securedfl.federation.train import resume as continue_run  # late: torch takes seconds
    from securedfl.federation.train import train
    from securedfl.reporting.report import write_report

    for number, cell in enumerate(left, start=1):
        seconds, unknown = forecast(left[number:], cells)
        turn = Turn(cell, states[cell.folder], number, len(left), seconds, unknown)
        with watch(turn) if watch else nullcontext(Observer()) as observer:
            if turn.state == "absent":
                train(cell.config, observer=observer)
            else:
                free = {key: value for key, value in cell.config.to_dict().items() if key in FREE}
                continue_run(cell.folder, changes=free, observer=observer)
            write_report(cell.folder)
    return len(left)


def forecast(left: Iterable[Cell], known: Iterable[Cell]) -> tuple[float | None, tuple[str, ...]]:
    """Estimate how long cells will take from the rounds that runs with the same data set have taken so far.

    Returns
    -------
    tuple
        Seconds, or None if nothing is known; and the data sets that the estimate leaves out.
    """
    pace: dict[tuple[str, float, float], list[float]] = {}
    for cell in known:
        if (cell.folder / CONFIG).is_file():
            spent = [row.train_seconds + row.average_seconds for row in read_rows(cell.folder, Row)]
            pace.setdefault(_kind(cell), []).extend(spent)
    total, unknown = 0.0, []
    for cell in left:
        spent = pace.get(_kind(cell), [])
        if spent:
            total += sum(spent) / len(spent) * cell.config.rounds * len(cell.config.methods)
        else:
            unknown.append(cell.config.dataset)
    return (total if total else None), tuple(dict.fromkeys(unknown))


def _kind(cell: Cell) -> tuple[str, float, float]:
    return (cell.config.dataset, cell.config.fraction, cell.config.width)
