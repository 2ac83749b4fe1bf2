"""Figures of what was measured, for docs/evidence/comparison.md."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIDES, CLEAR, OURS, LIGHT = "#c98300", "#9aa3af", "#0b57a4", "#d9dee5"
COLOURS = {"ours: hides what peers bring": OURS, "hides it too": HIDES, "does not": CLEAR}


def colour_of(name: str, one: str) -> str:
    """Return how a system is drawn, by its name and by what one peer learns in it."""
    return OURS if "ours" in name else HIDES if one.startswith("the total") else CLEAR


def averages(found: list[list[dict[str, Any]]], learns: dict[str, str], size: int, path: Path) -> None:
    """Draw time, processor time, bytes and error of one average, a point for each system; a line is the range of turns.

    Parameters
    ----------
    found
        By turn, what each system gave.
    learns
        By system, what one peer learns in it.
    size
        Numbers in a vector.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from securedfl.reporting.figures import style
    from securedfl.reporting.svg import save_figure

    rows = [name for k, name in enumerate(learns) if any("failed" not in turn[k] for turn in found)]
    order = {name: k for k, name in enumerate(learns)}

    def values(name: str, key: str, unit: float | None) -> list[float]:
        """Return a system's numbers of all turns, in a unit, or as multiples of gloo's."""
        turns = [(turn[order[name]].get(key), turn[0].get(key)) for turn in found]
        return [own / (unit or base) for own, base in turns if own is not None and (unit or base)]

    shown = {
        "time, x gloo": ("seconds", None),
        "processor, x gloo": ("processor_seconds_per_peer", None),
        "sent per peer, x vector": ("bytes_per_peer", 4.0 * size),
        "largest error": ("largest_error", 1.0),
    }

    @style()
    def points() -> Figure:
        figure = Figure(figsize=(10.8, 0.6 + 0.3 * len(rows)), layout="constrained")
        every = figure.subplots(1, len(shown), sharey=True)
        for axes, (title, (key, unit)) in zip(every, shown.items(), strict=True):
            for at, name in enumerate(rows):
                each = values(name, key, unit)
                if each:
                    colour, middle = colour_of(name, learns[name]), statistics.median(each)
                    axes.plot([min(each), max(each)], [at, at], color=colour, linewidth=3)
                    axes.plot(middle, at, "o", color=colour, markersize=7)
                    told = f"{middle:.1e}" if middle < 0.01 else f"{float(f'{middle:.2g}'):g}"
                    axes.text(max(each) * 1.4, at, told, va="center", fontsize=7)
            _frame(axes, title, [name.strip("*") for name in rows])
        handles = [Patch(color=colour, label=label) for label, colour in COLOURS.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
        return figure

    save_figure(points(), path)


def campaign(runs: list[dict[str, Any]], learns: dict[str, str], path: Path) -> None:
    """Draw how long the bad hour took each system, beside the quiet one, and whose trainings are in the model."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from securedfl.reporting.figures import style
    from securedfl.reporting.svg import save_figure

    hours = {
        hour: {run["system"]: run for run in runs if run["hour_name"] == hour and "failed" not in run}
        for hour in ("bad", "quiet")
    }
    rows = list(hours["bad"])

    @style()
    def bars() -> Figure:
        figure = Figure(figsize=(10.8, 0.9 + 0.34 * len(rows)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for at, name in enumerate(rows):
            run, calm = hours["bad"][name], hours["quiet"].get(name)
            colour = colour_of(name, learns.get(name, ""))
            took = run["seconds"] or run["over_after"]
            left.barh(at, took, color=colour, height=0.62)
            left.text(
                took, at, f" {took:.0f} s, {len(run['finished'])} of {run['sites']} sites", va="center", fontsize=7
            )
            if calm is not None and calm["seconds"]:
                left.plot([calm["seconds"]] * 2, [at - 0.31, at + 0.31], color="#1d2430", linewidth=2)
            inside = run["inside"][0]["trainings"] if run["inside"] else 0
            right.barh(at, run["sites"] * run["rounds"], color=LIGHT, height=0.62)
            right.barh(at, inside, color=colour, height=0.62)
            models = run["different_bits"] if run["apart"] > 1e-4 else 1
            told = f" {inside}" + (f", {models} different models" if models > 1 else "")
            right.text(2, at, told, va="center", fontsize=7, color="white" if inside > 20 else "#1d2430")
        _frame(left, "the bad hour, seconds; a stroke is the quiet one", [name.strip("*") for name in rows], log=False)
        _frame(right, "trainings in the model that most have, of all", [name.strip("*") for name in rows], log=False)
        left.set_xlim(0, left.get_xlim()[1] * 1.3)
        used = {colour_of(name, learns.get(name, "")) for name in rows}
        handles = [Patch(color=colour, label=label) for label, colour in COLOURS.items() if colour in used]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
        return figure

    save_figure(bars(), path)


def _frame(axes: Axes, title: str, names: list[str], *, log: bool = True) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    if log:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(low, high * 6)
    axes.grid(axis="y", visible=False)
