"""The experiments' figures, in the paper's form and the project's style."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securedfl.reporting.figures import GRID, INK, WIDTH, Pen, blank, legend, rounds_axis, style, whole_numbers
from securedfl.reporting.methods import Dashes, looks, palette
from securedfl.reporting.units import power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = tuple(palette())


@dataclass(frozen=True)
class Curve:
    """Accuracies per round from 0 on, one list for each seed."""

    name: str
    label: str
    all: Sequence[Sequence[float]]

    @property
    def percent(self) -> list[list[float]]:
        """By round: the percentages of all seeds."""
        return [[100 * value for value in values] for values in zip(*self.all, strict=True)]


@dataclass(frozen=True)
class Panel:
    """One of several small figures, and how its runs are scaled; without curves it says that nothing was run."""

    title: str
    scaled: str
    curves: Sequence[Curve]


@dataclass(frozen=True)
class Counted:
    """Numbers of partitions: what Algorithm 2 finds with each seed, what is best known, and what counting allows."""

    group_size: int
    peers: int
    randomized: list[int]
    best: int
    bound: int


@style()
def panels(shown: Sequence[Panel], *, columns: int, titles: bool = True) -> Figure:
    """Accuracy per round in small multiples."""
    from matplotlib.figure import Figure

    rows = -(-len(shown) // columns)
    size = (WIDTH, 3.3) if columns == 1 else (3.6 * columns, 0.5 + 2.9 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    labels = {curve.name: curve.label for panel in shown for curve in panel.curves}
    drawn = looks(labels)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for place, (axes, panel) in enumerate(zip(grid.flat, shown, strict=False)):
        if titles:
            axes.set_title(_heading(panel), fontsize=10)
        if not panel.curves:
            _not_run(axes)
            continue
        for layer, curve in enumerate(sorted(panel.curves, key=lambda c: list(drawn).index(c.name))):
            look, points = drawn[curve.name], len(curve.percent)
            _draw(axes, curve, layer, Pen.of(look, points=points, layer=layer, layers=len(panel.curves)))
        _accuracy_axes(axes, panel.curves)
        # A neighbour to the left or below names the axis already.
        if place % columns and shown[place - 1].curves:
            axes.set_ylabel("")
        if any(panel.curves for panel in shown[place + columns : place + columns + 1]):
            axes.set_xlabel("")
    entries = [(labels[name], Pen.of(look, points=2)) for name, look in drawn.items()]
    legend(figure, entries, columns=len(entries) if columns > 1 else 2)
    return figure


@style()
def by_iterations(curves: Sequence[Curve], *, exact: str) -> Figure:
    """Accuracy per round, one line for each number of iterations."""
    figure, axes = blank(3.6)
    entries = []
    for layer, curve in enumerate(curves):
        line = _iteration_line(curve.name, exact, layer, len(curve.percent))
        _draw(axes, curve, layer, line)
        entries.append((curve.label, replace(line, markevery=None)))
    _accuracy_axes(axes, curves)
    legend(figure, entries, columns=4)
    return figure


@style()
def errors(
    lines: Mapping[str, Sequence[tuple[int, float]]], *, level: float = math.nan, level_name: str = ""
) -> Figure:
    """Mean squared error by number of iterations on a logarithmic scale, and one that has no iterations as a level."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure, axes = blank(4.2)
    entries = list(zip(lines, itertools.cycle(_ERROR_LINES), strict=False))
    for name, line in entries:
        shown = [(x, y) for x, y in lines[name] if y > 0]
        line.draw(axes, [x for x, _ in shown], [y for _, y in shown])
    if level > 0:
        axes.axhline(level, **vars(_LEVEL))
        entries.append((level_name, _LEVEL))
    axes.set_yscale("log")
    axes.set_xlabel("ADMM iterations")
    axes.set_ylabel("mean squared error")
    axes.yaxis.set_major_locator(LogLocator(numticks=10))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))
    axes.minorticks_off()
    axes.set_xticks(sorted({x for points in lines.values() for x, _ in points}))
    legend(figure, entries, columns=2)
    return figure


@style()
def partitions(rows: Sequence[Counted]) -> Figure:
    """Partitions by number of peers: Algorithm 2 with a band over seeds, the best known, and the bound."""
    figure, axes = blank(3.9)
    entries = []
    for size in dict.fromkeys(row.group_size for row in rows):
        colour = _SIZE_COLOURS.get(size, COLOURS[5])
        own = [row for row in rows if row.group_size == size]
        n = [row.peers for row in own]
        low, high = ([end(row.randomized) for row in own] for end in (min, max))
        axes.fill_between(n, low, high, color=colour, alpha=0.25, linewidth=0)
        lines: dict[str, Sequence[float]] = {
            "bound": [row.bound for row in own],
            "best known": [row.best for row in own],
            "Algorithm 2": [sum(row.randomized) / len(row.randomized) for row in own],
        }
        for name, values in lines.items():
            line = replace(_PARTITION_LINES[name], color=colour)
            line.draw(axes, n, values)
            entries.append((f"size {size}: {name}", line))
    axes.set_xlabel("peers")
    axes.set_ylabel("partitions")
    for axis in (axes.xaxis, axes.yaxis):
        whole_numbers(axis)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    legend(figure, entries, columns=2)
    return figure


_SIZE_COLOURS = {3: "#c2410c", 4: "#00835f"}
"""The paper draws groups of 3 in red and of 4 in green."""

_PARTITION_LINES = {
    "bound": Pen(color=INK, linestyle=":", linewidth=1.4),
    "best known": Pen(color=INK, linestyle=(0, (5, 1.5)), linewidth=1.8, marker="o", markersize=4),
    "Algorithm 2": Pen(color=INK, linewidth=2.4),
}
"""Each size of groups draws them in its own colour."""

_ERROR_LINES = (
    Pen(color="#b5487f", linewidth=2.2, marker="D"),
    Pen(color="#b5487f", linestyle=(0, (3, 1.5)), linewidth=1.4, marker="d"),
    Pen(color="#0b57a4", linewidth=2.2, marker="o"),
    Pen(color="#0b57a4", linestyle=(0, (3, 1.5)), linewidth=1.4, marker=".", markersize=6),
    Pen(color=INK, linestyle="none", marker="x", markersize=9, markeredgewidth=2.2),
)

_LEVEL = Pen(color=COLOURS[4], linestyle=(0, (1.2, 1.8)), linewidth=1.6)

_EXACT = Pen(color=COLOURS[3], linewidth=1.4, marker="o", markersize=4)

_ITERATION_COLOURS = (*COLOURS[:3], *COLOURS[4:])

_ITERATION_DASHES: Sequence[Dashes] = [
    *("-", "-"),
    *((0, dashes) for dashes in ((5, 1.5), (2.5, 1.2), (1.2, 1.5), (6, 1.5, 1.2, 1.5), (8, 2))),
]


def _draw(axes: Axes, curve: Curve, layer: int, line: Pen) -> None:
    """Draw the mean over seeds, and a band from the lowest to the highest."""
    by_round = curve.percent
    rounds = list(range(len(by_round)))
    if len(curve.all) > 1:
        low, high = [min(v) for v in by_round], [max(v) for v in by_round]
        axes.fill_between(rounds, low, high, color=line.color, alpha=0.1, linewidth=0, zorder=1.5)
    line.draw(axes, rounds, [sum(v) / len(v) for v in by_round], layer=layer)


def _accuracy_axes(axes: Axes, curves: Sequence[Curve]) -> None:
    """Begin a little below where the curves are after a sixth of the rounds: the first ones would squeeze them."""
    late = [v for c in curves for values in c.percent[max(1, len(c.percent) // 6) :] for v in values]
    low, high = min(late, default=0.0), max(late, default=100.0)
    room = max(0.05 * (high - low), 0.2)
    axes.set_ylim(max(low - room, 0), min(high + room, 100.3))
    axes.set_ylabel("test accuracy, %")
    rounds_axis(axes, ticks=6)


def _not_run(axes: Axes) -> None:
    axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_color(GRID)


def _iteration_line(name: str, exact: str, layer: int, points: int) -> Pen:
    if name == exact:
        return replace(_EXACT, markevery=max(1, points // 8))
    return Pen(
        color=_ITERATION_COLOURS[layer % len(_ITERATION_COLOURS)],
        linestyle=_ITERATION_DASHES[layer % len(_ITERATION_DASHES)],
        linewidth=6.0 if name == "2" else 1.8,
        alpha=0.55 if name == "2" else 1.0,
    )


def _heading(panel: Panel) -> str:
    """Return the title with what makes a panel scaled on lines of its own, two parts on each."""
    parts = panel.scaled.split(", ")
    lines = [", ".join(parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return panel.title + ("\nscaled: " + ",\n".join(lines) if panel.scaled else "")
