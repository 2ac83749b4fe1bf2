"""What an experiment shows: a table for people, rows of numbers, figures, and the paper's claims checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from securedfl.evaluation.units import NONE, percent

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
        The table for people, as text.
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


def with_spread(mean: float, deviation: float) -> str:
    """Return "97.53 %" or "97.53 ± 0.12 %"."""
    if not math.isfinite(mean):
        return NONE
    return f"{100 * mean:.2f} ± {100 * deviation:.2f} %" if math.isfinite(deviation) else percent(mean)


def signed(points: float) -> str:
    """Return a difference in percentage points with its sign."""
    return f"{points:+.2f}".replace("-", "−")


def judged(*, holds: bool, noise: bool = False) -> Verdict:
    """Return the verdict on something measured."""
    return "holds" if holds else "within noise" if noise else "differs"


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the least favourable verdict; nothing measured is "not measured"."""
    order: tuple[Verdict, ...] = ("differs", "within noise", "holds")
    return next((verdict for verdict in order if verdict in verdicts), "not measured")
