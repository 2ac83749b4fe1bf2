"""What an experiment shows: a table for people, rows of numbers, figures, and the paper's claims checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from securedfl.experiments import paper
from securedfl.experiments.runs.collected import C, Cell
from securedfl.experiments.runs.found import Accuracies, mean, spread
from securedfl.reporting.page import Table
from securedfl.reporting.units import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal[
    "holds", "holds for these models", "not decided", "differs for these models", "differs", "not measured"
]
"""With one seed a claim holds or differs for the models that it gave, whatever other trainings would give."""

LEAST_FAVOURABLE: Sequence[Verdict] = (
    "differs",
    "differs for these models",
    "not decided",
    "holds for these models",
    "holds",
)
"""What a claim about several cases gets, if one of them has it."""


@dataclass(frozen=True)
class Check:
    """What one case says about a claim, with its numbers."""

    numbers: str
    verdict: Verdict

    @classmethod
    def of(cls, numbers: str, *, holds: bool) -> Self:
        """Judge what needs no interval, such as a count or an error that was computed."""
        return cls(numbers, "holds" if holds else "differs")


@dataclass(frozen=True)
class Finding:
    """One claim of the paper, or of ours, and what the runs say.

    ``"not decided"`` is a claim that the interval neither lies within nor outside of.
    """

    claim: str
    verdict: Verdict
    numbers: str = ""

    @classmethod
    def of(cls, claim: str, checks: Iterable[Check], missing: Sequence[str] = ()) -> Finding:
        """Judge a claim by its least favourable case; without any it is not measured.

        A claim about cases that are ``missing`` does not hold before they were run, too.
        """
        cases = list(checks)
        found = {case.verdict for case in cases}
        order: tuple[Verdict, ...] = (
            "differs",
            "differs for these models",
            "not decided",
            "holds for these models",
            "holds",
        )
        verdict: Verdict = next((verdict for verdict in order if verdict in found), "not measured")
        told = [case.numbers for case in cases]
        if verdict in ("holds", "holds for these models") and missing:
            verdict = "not decided"
            told.append(f"not run: {', '.join(missing)}")
        return cls(claim, verdict, "; ".join(told))


@dataclass(frozen=True)
class Plot:
    """One figure, made when asked for, with what it shows, how to read it and what a screen reader says instead."""

    make: Callable[[], Figure]
    title: str
    caption: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An experiment's result.

    Attributes
    ----------
    table, compact
        For people, as text; a column "Scale" comes last where runs can be scaled. A narrower one, with a remark as its
        caption, for terminals and pages.
    records
        The numbers, one flat row each, for CSV.
    cells
        The runs behind it, if it needs any.
    figure, charts
        The paper's figure, written as SVG and PNG; and what the report draws, by default the figure.
    """

    table: Table
    compact: Table | None = None
    records: Sequence[Mapping[str, object]]
    findings: Sequence[Finding]
    notes: Sequence[str]
    cells: Sequence[Cell] = ()
    figure: Plot | None = None
    charts: Sequence[Plot] = ()

    @property
    def scaled(self) -> list[str]:
        """What is smaller than the paper's, in words: each scale, with what it applies to."""
        found: dict[str, dict[str, None]] = {}
        for cell in self.cells:
            if cell.scaled:
                found.setdefault(cell.scaled, {})[f"{paper.name(cell.dataset)} ({cell.peers} peers)"] = None
        return [f"{', '.join(names)}: {scaled}" for scaled, names in found.items()]


def smaller(groups: Mapping[str, Sequence[C]], judge: Callable[[Sequence[C]], Iterable[Finding]]) -> Iterator[Finding]:
    """Judge what is smaller than the paper's apart, with the scale in the claim; what was not measured is left out."""
    for scale, cells in groups.items():
        for finding in judge(cells):
            if finding.verdict != "not measured":
                yield replace(finding, claim=f"Scaled ({scale}): {finding.claim[0].lower()}{finding.claim[1:]}")


def round_records(cell: Cell, key: str, found: Mapping[str, Accuracies]) -> list[dict[str, object]]:
    """Return a record for every accuracy of every seed and round; ``key`` is the column of their names."""
    return [
        cell.record(**{key: name}, seed=seed, round=number, accuracy=value)
        for name, own in found.items()
        for seed, curve in zip(own.seeds, own.accuracy, strict=True)
        for number, value in enumerate(curve)
    ]


def with_spread(values: Sequence[float]) -> str:
    """Return the mean over seeds as "97.53 %", or as "97.53 ± 0.12 %" if there are several."""
    deviation = spread(values)
    several = math.isfinite(deviation)
    return f"{100 * mean(values):.2f} ± {100 * deviation:.2f} %" if several else percent(mean(values))


def signed(points: float) -> str:
    """Return a difference in percentage points with its sign; zero has none."""
    text = f"{points:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")
