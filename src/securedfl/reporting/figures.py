"""The figures of a run as matplotlib figures: readable on a phone, on a wide screen and on paper.

Every function takes plain numbers by method and returns a `matplotlib.figure.Figure` that belongs to no global
state; `securedfl.reporting.svg` turns one into a file or into a part of a page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from securedfl.errors import needing
from securedfl.federation.methods import label
from securedfl.reporting.methods import Dashes, Look, looks
from securedfl.reporting.units import data_size, duration, power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Series = tuple[Sequence[int], Sequence[float]]

INK = "#1d2430"
GRID = "#d9dee5"
WIDTH = 4.7

MOST_DOTS = 400
"""Peers up to which each is a dot."""

# An error below it is drawn as zero: two powers of ten must still fit underneath.
_TINY = 1e-300
_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.5,
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "axes.linewidth": 0.8,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "securedfl",
    **dict.fromkeys(["axes.facecolor", "figure.facecolor", "savefig.facecolor"], "none"),
    **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], INK),
}

_ABOVE: dict[str, Any] = {"loc": "outside upper left", "frameon": False, "borderaxespad": 0}
"""Where a legend stands."""


@dataclass(frozen=True, kw_only=True)
class Pen:
    """How a curve is drawn, in matplotlib's words."""

    color: str
    linewidth: float = 1.5
    linestyle: Dashes = "-"
    marker: str = ""
    markersize: float = 5
    markeredgewidth: float = 1.0
    markevery: int | tuple[int, int] | None = None
    alpha: float = 1.0
    solid_capstyle: Literal["round", "projecting"] = "projecting"

    @classmethod
    def of(cls, look: Look, *, points: int, layer: int = 0, layers: int = 1) -> Pen:
        """Return how a method's curve is drawn; markers are thinned out and take turns, to not hide each other."""
        step = max(layers, points // 8) if points > layers else 1
        alone = points == 1
        return cls(
            color=look.colour,
            linewidth=look.width,
            linestyle=look.dashes,
            marker=look.marker or ("o" if alone else ""),
            markersize=9 if alone and not look.marker else 5,
            markevery=(layer % step, step),
            alpha=0.55 if look.width > 3 and not alone else 1.0,
            solid_capstyle="round",
        )

    def draw(self, axes: Axes, x: Sequence[float], y: Sequence[float], *, layer: int = 0) -> None:
        """Draw a curve, above those of lower layers."""
        axes.plot(x, y, zorder=2 + 0.1 * layer, **vars(self))


@contextmanager
def style() -> Iterator[None]:
    """Apply the project's figure style, and nothing of the user's own matplotlib settings."""
    with needing("figures"):
        import matplotlib
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # The keys are literal types in some versions only.
        settings: Any = matplotlib.rcParams
        settings.update(_STYLE)
        yield


def accuracy_curves(curves: Mapping[str, Series], *, closeup: bool = False) -> Figure:
    """Test accuracy per round (the paper's Figure 3); a close-up shows only the upper part, where the methods end."""
    percent = {m: (x, [100 * v for v in y]) for m, (x, y) in curves.items()}

    def finish(axes: Axes) -> None:
        low, high = axes.get_ylim()
        # Accuracies that are all 100 % need some room too.
        floor = min(_closeup_floor(percent) if closeup else max(low, 0), 99.0)
        axes.set_ylim(floor, min(high, 100 + 0.03 * (100 - floor)))

    return _curves(percent, "test accuracy, %", finish)


def has_closeup(curves: Mapping[str, Series]) -> bool:
    """Tell whether the ends of the curves are squeezed into the upper third, so that a close-up helps."""
    values = [v for _, y in curves.values() for v in y]
    return len(values) >= 6 and max(values) - _closeup_floor(curves) < 0.4 * (max(values) - min(values))


def loss_curves(curves: Mapping[str, Series]) -> Figure:
    """Test loss per round, on a logarithmic scale when it spans more than a factor of 20."""
    values = [v for _, y in curves.values() for v in y]
    logarithmic = bool(values) and min(values) > 0 and max(values) > 20 * min(values)

    def finish(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())

    return _curves(curves, "test loss", finish)


def error_curves(curves: Mapping[str, Series]) -> Figure:
    """Error of the average per round on a logarithmic scale; an error of exactly zero lies on the line "0"."""
    positive = [v for _, y in curves.values() for v in y if v > _TINY]
    has_zero = any(v <= _TINY for _, y in curves.values() for v in y)
    exponents = [math.floor(math.log10(v)) for v in positive] or [-16]
    floor = 10.0 ** (min(exponents) - 2)
    drawn = {m: (x, [v if v > _TINY else floor for v in y]) for m, (x, y) in curves.items()}

    def finish(axes: Axes) -> None:
        top = max(exponents) + 1
        step = max(1, math.ceil((top - min(exponents) + 1) / 6))
        ticks = [10.0**e for e in range(min(exponents), top + 1, step)]
        axes.set_yscale("log")
        axes.set_ylim(floor / 3 if has_zero else 10.0 ** min(exponents), 10.0**top)
        axes.set_yticks([floor, *ticks] if has_zero else ticks)
        axes.set_yticklabels((["0"] if has_zero else []) + [power_of_ten(t) for t in ticks])
        axes.minorticks_off()

    return _curves(drawn, "mean squared error", finish, height=4.2)


@style()
def traffic_bars(sizes: Mapping[str, float]) -> Figure:
    """Bytes that one peer sends in one round, by method."""
    figure, axes = _bars(sizes, data_size)
    for row, (method, look) in enumerate(looks(sizes).items()):
        axes.barh(row, sizes[method], height=0.42, color=look.colour)
    return figure


@style()
def time_bars(train: Mapping[str, float], average: Mapping[str, float]) -> Figure:
    """Seconds spent on training (solid) and averaging (hatched), by method."""
    from matplotlib.patches import Patch

    total = {m: train[m] + average[m] for m in train}
    figure, axes = _bars(total, duration)
    hatched: dict[str, Any] = {"height": 0.42, "fill": False, "hatch": "/////", "linewidth": 1.2}
    for row, (method, look) in enumerate(looks(total).items()):
        axes.barh(row, train[method], height=0.42, color=look.colour)
        axes.barh(row, average[method], left=train[method], edgecolor=look.colour, **hatched)
    kinds = [
        Patch(facecolor=GRID, edgecolor=INK, label="training"),
        Patch(facecolor="none", edgecolor=INK, hatch="/////", label="averaging"),
    ]
    figure.legend(handles=kinds, ncols=2, **_ABOVE)
    return figure


@style()
def peer_strip(accuracy: Mapping[str, Sequence[float]]) -> Figure:
    """Each peer's own test accuracy as one dot, by method, with the median as a bar."""
    figure, axes = blank(0.85 + 0.66 * max(len(accuracy), 1))
    dots: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 6.5, "markeredgecolor": "none"}
    for row, (method, look) in enumerate(looks(accuracy).items()):
        values = sorted(100 * v for v in accuracy[method] if math.isfinite(v))
        if not values:
            continue
        count = len(values)
        if count > MOST_DOTS:
            # every so many of them, from the least to the most
            values = [values[at * (count - 1) // (MOST_DOTS - 1)] for at in range(MOST_DOTS)]
        heights = [row + dy for dy in _stacked(values)]
        axes.plot(values, heights, color=look.colour, alpha=0.75, clip_on=False, zorder=3, **dots)
        middle = median(values)
        axes.plot([middle, middle], [row - 0.33, row + 0.33], color=INK, linewidth=2.2, zorder=2)
    _name_rows(axes, list(looks(accuracy)), offset=-0.33)
    axes.set_ylim(max(len(accuracy), 1) - 0.6, -0.75)
    most = max((len(values) for values in accuracy.values()), default=0)
    whose = f"{MOST_DOTS} of {most:,} peers, from least to most" if most > MOST_DOTS else "each peer"
    axes.set_xlabel(f"test accuracy of {whose}, %")
    axes.margins(x=0.04)
    axes.spines["left"].set_visible(False)
    return figure


@style()
def _curves(
    curves: Mapping[str, Series], ylabel: str, finish: Callable[[Axes], None], *, height: float = 3.3
) -> Figure:
    figure, axes = blank(height)
    axes.set_ylabel(ylabel)
    rounds_axis(axes, ticks=8)
    drawn = looks(curves)
    for layer, (method, look) in enumerate(drawn.items()):
        x, y = curves[method]
        Pen.of(look, points=len(x), layer=layer, layers=len(drawn)).draw(axes, x, y, layer=layer)
    finish(axes)
    entries = [(label(method), Pen.of(look, points=2)) for method, look in drawn.items()]
    legend(figure, entries, columns=2 if len(entries) != 3 else 3)
    return figure


def legend(figure: Figure, entries: Sequence[tuple[str, Pen]], *, columns: int) -> None:
    """Name lines, each by its label and how it is drawn, above a figure."""
    from matplotlib.lines import Line2D

    if not entries:
        return
    handles = [Line2D([], [], **vars(line)) for _, line in entries]
    names = ["?"] * len(handles)
    shown = figure.legend(handles, names, ncols=columns, handlelength=2.6, columnspacing=1.4, **_ABOVE)
    for text, (name, _) in zip(shown.get_texts(), entries, strict=True):
        _literal(text, name)


def rounds_axis(axes: Axes, *, ticks: int) -> None:
    """Make the horizontal axis one of rounds."""
    axes.set_xlabel("round")
    axes.margins(x=0.02)
    whole_numbers(axes.xaxis, ticks=ticks)


def whole_numbers(axis: Axis, *, ticks: int = 8) -> None:
    """Let an axis of things that are counted have whole numbers only: nobody is half a peer."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=ticks, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def blank(height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of so many inches that belongs to no global state, and its only axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _bars(values: Mapping[str, float], unit: Callable[[float], str]) -> tuple[Figure, Axes]:
    """Return an empty bar chart with the method's name and its value written above each bar to come."""
    figure, axes = blank(0.35 + 0.56 * max(len(values), 1))
    _name_rows(axes, list(looks(values)), offset=-0.27, values=[unit(values[m]) for m in looks(values)])
    axes.set_ylim(max(len(values), 1) - 0.7, -0.72)
    axes.set_xlim(0, max([*values.values(), 0.0]) or 1)
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_visible(False)
    return figure, axes


def _name_rows(axes: Axes, rows: Sequence[str], *, offset: float, values: Sequence[str] = ()) -> None:
    axes.set_yticks([])
    across = axes.get_yaxis_transform()
    for row, method in enumerate(rows):
        name = axes.text(0, row + offset, "", transform=across, va="bottom", fontsize=10.5)
        _literal(name, label(method))
        if values:
            axes.text(1, row + offset, values[row], transform=across, va="bottom", ha="right", fontsize=10.5)


def _literal(text: Any, content: str) -> None:
    """Set a text that the user may have chosen: never read as a formula."""
    text.set_parse_math(False)
    text.set_text(content)


def _closeup_floor(curves: Mapping[str, Series]) -> float:
    """Return a little less than the lowest value of the last two thirds of the rounds."""
    last = max((x[-1] for x, _ in curves.values() if x), default=0)
    late = [v for x, y in curves.values() for r, v in zip(x, y, strict=True) if r >= last / 3]
    everything = [v for _, y in curves.values() for v in y]
    return min(late, default=0.0) - 0.05 * (max(everything, default=0.0) - min(late, default=0.0))


def _stacked(values: Sequence[float]) -> list[float]:
    """Return a small height for each of the ascending values, so that equal ones stay visible."""
    width = (values[-1] - values[0]) / 40
    piles: list[int] = []
    start = -math.inf
    for value in values:
        if value - start > width:
            piles.append(0)
            start = value
        piles[-1] += 1
    steps = [min(0.11, 0.5 / max(pile - 1, 1)) for pile in piles]
    return [(i - (pile - 1) / 2) * step for pile, step in zip(piles, steps, strict=True) for i in range(pile)]
