"""What an experiment shows: a table for people, rows of numbers, figures, and the paper's claims checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from securedfl.experiments import paper
from securedfl.reporting.units import NONE, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["holds", "within noise", "differs", "not measured"]


@dataclass(frozen=True)
class Finding:
    """One claim of the paper, or of ours, and what the runs say.

    Attributes
    ----------
    claim
        What is claimed, in one sentence.
    verdict
        ``"within noise"``: not as claimed, but by less than two standard errors of the test set.
    numbers
        What was measured.
    """

    claim: str
    verdict: Verdict
    numbers: str = ""


@dataclass(frozen=True)
class Picture:
    """One figure; drawn when asked for.

    Attributes
    ----------
    draw
        Makes the figure.
    title, caption
        What it shows and how to read it.
    description
        What a screen reader says instead.
    """

    draw: Callable[[], Figure]
    title: str
    caption: str
    description: str


@dataclass(frozen=True)
class Exhibit:
    """An experiment's result.

    Attributes
    ----------
    columns, rows
        The table for people, as text; a column "Scale" comes last where runs can be scaled.
    compact
        Remark, columns and rows of a narrower table, for terminals and pages.
    records
        The numbers, one flat row each, for CSV.
    findings
        The paper's claims.
    figure
        The paper's figure, written as SVG and PNG; None if there is nothing to draw.
    charts
        What the report draws; by default the figure.
    notes
        What a reader must know.
    scaled
        What is smaller than the paper's, in words: one entry per scale that occurs.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    records: Sequence[Mapping[str, Any]]
    findings: Sequence[Finding]
    figure: Picture | None = None
    charts: Sequence[Picture] = ()
    notes: Sequence[str] = field(default_factory=tuple)
    scaled: Sequence[str] = field(default_factory=tuple)
    compact: tuple[str, Sequence[str], Sequence[Sequence[str]]] | None = None


def place(cell: Mapping[str, Any]) -> str:
    """Return data set and peers, and whether the runs were scaled."""
    return f"{paper.name(cell['dataset'])}, {cell['peers']} peers" + (", scaled" if cell["scaled"] else "")


def scale_of(cell: Mapping[str, Any] | None) -> str:
    """Return how a cell's runs are smaller than the paper's, for the column "Scale"."""
    return NONE if cell is None else cell["scaled"] or "full"


def scales(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return each scale that is not the paper's, with what it applies to."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        if cell["scaled"]:
            name = f"{paper.name(cell['dataset'])} ({cell['peers']} peers)"
            found.setdefault(cell["scaled"], []).append(name)
    return [f"{', '.join(dict.fromkeys(names))}: {scaled}" for scaled, names in found.items()]


def round_records(cells: Sequence[Mapping[str, Any]], series: str, key: str) -> list[dict[str, Any]]:
    """Return a record for every accuracy of every seed and round; ``series`` of a cell has the curves by ``key``."""
    return [
        {
            "dataset": cell["dataset"],
            "peers": cell["peers"],
            "scaled": cell["scaled"],
            key: name,
            "seed": seed,
            "round": number,
            "accuracy": value,
        }
        for cell in cells
        for name, found in cell[series].items()
        for seed, curve in zip(found["seeds"], found["accuracy"], strict=True)
        for number, value in enumerate(curve)
    ]


def with_spread(mean: float, deviation: float) -> str:
    """Return "97.53 %" or "97.53 ± 0.12 %"."""
    if not math.isfinite(mean):
        return NONE
    return f"{100 * mean:.2f} ± {100 * deviation:.2f} %" if math.isfinite(deviation) else percent(mean)


def signed(points: float) -> str:
    """Return a difference in percentage points with its sign; zero has none."""
    text = f"{points:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")


def judged(*, holds: bool, noise: bool = False) -> Verdict:
    """Return the verdict on something measured."""
    return "holds" if holds else "within noise" if noise else "differs"


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the least favourable verdict; nothing measured is "not measured"."""
    order: tuple[Verdict, ...] = ("differs", "within noise", "holds")
    return next((verdict for verdict in order if verdict in verdicts), "not measured")
