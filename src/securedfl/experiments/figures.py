"""The experiments' figures, in the paper's form and the project's style."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securedfl.reporting.figures import GRID, INK, WIDTH, line, style
from securedfl.reporting.methods import looks, palette
from securedfl.reporting.units import power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = palette()


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
    """One of several small figures; without curves it says that nothing was run.

    Attributes
    ----------
    title
        What it is about.
    scaled
        How its runs are smaller than the paper's, in words.
    curves
        What it shows.
    """

    title: str
    scaled: str
    curves: Sequence[Curve]


def panels(shown: Sequence[Panel], *, columns: int, titles: bool = True) -> Figure:
    """Accuracy per round in small multiples."""
    with style():
        rows = -(-len(shown) // columns)
        figure = _figure(WIDTH if columns == 1 else 3.6 * columns, 3.3 if columns == 1 else 0.5 + 2.9 * rows)
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
                drawing = line(look, points=points, layer=layer, layers=len(panel.curves))
                _draw(axes, curve, look.colour, layer, **drawing)
            _accuracy_axes(axes, panel.curves)
            if place % columns and shown[place - 1].curves:  # the neighbour says it already
                axes.set_ylabel("")
            if any(panel.curves for panel in shown[place + columns : place + columns + 1]):
                axes.set_xlabel("")
        handles = [_handle(**line(drawn[name], points=2)) for name in drawn]
        wide = len(handles) if columns > 1 else 2
        _legend(figure, handles, [labels[name] for name in drawn], columns=wide)
        return figure


def by_iterations(curves: Sequence[Curve], *, exact: str) -> Figure:
    """Accuracy per round, one line for each number of iterations."""
    with style():
        figure = _figure(WIDTH, 3.6)
        axes = figure.subplots()
        handles = []
        for layer, curve in enumerate(curves):
            look = _iteration_line(curve.name, exact, layer, len(curve.percent))
            _draw(axes, curve, look["color"], layer, **look)
            handles.append(_handle(**{**look, "markevery": None}))
        _accuracy_axes(axes, curves)
        _legend(figure, handles, [c.label for c in curves], columns=4)
        return figure


def errors(
    lines: Mapping[str, Sequence[tuple[int, float]]], *, level: float = math.nan, level_name: str = ""
) -> Figure:
    """Mean squared error by number of iterations on a logarithmic scale, and one that has no iterations as a level."""
    with style():
        figure = _figure(WIDTH, 4.2)
        axes = figure.subplots()
        handles, labels = [], []
        for number, (name, points) in enumerate(lines.items()):
            look = _ERROR_LINES[number % len(_ERROR_LINES)]
            shown = [(x, y) for x, y in points if y > 0]
            axes.plot([x for x, _ in shown], [y for _, y in shown], **look)
            handles.append(_handle(**look))
            labels.append(name)
        if level > 0:
            look = {"color": COLOURS[4], "linestyle": (0, (1.2, 1.8)), "linewidth": 1.6}
            axes.axhline(level, **look)
            handles.append(_handle(**look))
            labels.append(level_name)
        axes.set_yscale("log")
        axes.set_xlabel("ADMM iterations")
        axes.set_ylabel("mean squared error")
        _powers(axes)
        axes.set_xticks(sorted({x for points in lines.values() for x, _ in points}))
        _legend(figure, handles, labels, columns=2)
        return figure


def partitions(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Partitions by number of peers: Algorithm 2 with a band over seeds, the best known, and the bound."""
    with style():
        figure = _figure(WIDTH, 3.9)
        axes = figure.subplots()
        handles, labels = [], []
        for size in dict.fromkeys(row["group_size"] for row in rows):
            colour = _SIZE_COLOURS.get(size, COLOURS[5])
            own = [row for row in rows if row["group_size"] == size]
            n = [row["peers"] for row in own]
            found = [row["randomized"] for row in own]
            middle = [sum(each) / len(each) for each in found]
            axes.fill_between(
                n, [min(e) for e in found], [max(e) for e in found], color=colour, alpha=0.25, linewidth=0
            )
            lines = {
                "bound": [row["bound"] for row in own],
                "best known": [row["best"] for row in own],
                "Algorithm 2": middle,
            }
            for name, values in lines.items():
                look = _PARTITION_LINES[name]
                axes.plot(n, values, color=colour, **look)
                handles.append(_handle(color=colour, **look))
                labels.append(f"size {size}: {name}")
        axes.set_xlabel("peers")
        axes.set_ylabel("partitions")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.02)
        _legend(figure, handles, labels, columns=2)
        return figure


_SIZE_COLOURS = {3: "#c2410c", 4: "#00835f"}
"""The paper draws groups of 3 in red and of 4 in green."""

_PARTITION_LINES: dict[str, dict[str, Any]] = {
    "bound": {"linestyle": ":", "linewidth": 1.4},
    "best known": {"linestyle": (0, (5, 1.5)), "linewidth": 1.8, "marker": "o", "markersize": 4},
    "Algorithm 2": {"linestyle": "-", "linewidth": 2.4},
}

_ERROR_LINES: tuple[dict[str, Any], ...] = (
    {"color": "#b5487f", "linestyle": "-", "linewidth": 2.2, "marker": "D", "markersize": 5},
    {"color": "#b5487f", "linestyle": (0, (3, 1.5)), "linewidth": 1.4, "marker": "d", "markersize": 5},
    {"color": "#0b57a4", "linestyle": "-", "linewidth": 2.2, "marker": "o", "markersize": 5},
    {"color": "#0b57a4", "linestyle": (0, (3, 1.5)), "linewidth": 1.4, "marker": ".", "markersize": 6},
    {"color": INK, "linestyle": "none", "marker": "x", "markersize": 9, "markeredgewidth": 2.2},
)


def _draw(axes: Axes, curve: Curve, colour: str, layer: int, **look: Any) -> None:
    by_round = curve.percent
    rounds = list(range(len(by_round)))
    if len(curve.all) > 1:
        low, high = [min(v) for v in by_round], [max(v) for v in by_round]
        axes.fill_between(rounds, low, high, color=colour, alpha=0.1, linewidth=0, zorder=1.5)
    axes.plot(rounds, [sum(v) / len(v) for v in by_round], zorder=2 + 0.1 * layer, **look)


def _accuracy_axes(axes: Axes, curves: Sequence[Curve]) -> None:
    """Begin a little below where the curves are after a sixth of the rounds: the first ones would squeeze them."""
    from matplotlib.ticker import MaxNLocator

    late = [
        v for curve in curves for values in curve.percent[max(1, len(curve.percent) // 6) :] for v in values
    ]
    late = late or [0.0, 100.0]
    low, high = min(late), max(late)
    room = max(0.05 * (high - low), 0.2)
    axes.set_ylim(max(low - room, 0), min(high + room, 100.3))
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy, %")
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def _not_run(axes: Axes) -> None:
    axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_color(GRID)


def _iteration_line(name: str, exact: str, layer: int, points: int) -> dict[str, Any]:
    if name == exact:
        return {"color": COLOURS[3], "linewidth": 1.4, "linestyle": "-", "marker": "o", "markersize": 4,
                "markevery": max(1, points // 8)}  # fmt: skip
    spare = (COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[4], *COLOURS[5:])
    dashes: tuple[Any, ...] = (
        "-",
        "-",
        (0, (5, 1.5)),
        (0, (2.5, 1.2)),
        (0, (1.2, 1.5)),
        (0, (6, 1.5, 1.2, 1.5)),
        (0, (8, 2)),
    )
    return {
        "color": spare[layer % len(spare)], "linestyle": dashes[layer % len(dashes)],
        "linewidth": 6.0 if name == "2" else 1.8, "alpha": 0.55 if name == "2" else 1.0,
    }  # fmt: skip


def _powers(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.yaxis.set_major_locator(LogLocator(numticks=10))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))
    axes.minorticks_off()


def _handle(**look: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **look)


def _legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], *, columns: int) -> None:
    if not handles:
        return
    legend = figure.legend(
        list(handles), list(labels), loc="outside upper left", ncols=columns, frameon=False, handlelength=2.6,
        columnspacing=1.4, borderaxespad=0,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def _heading(panel: Panel) -> str:
    """Return the title with what makes a panel scaled on lines of its own, two parts on each."""
    parts = panel.scaled.split(", ")
    lines = [", ".join(parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return panel.title + ("\nscaled: " + ",\n".join(lines) if panel.scaled else "")


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
