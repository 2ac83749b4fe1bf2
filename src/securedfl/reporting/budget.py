"""Pictures of a budget: epsilon against noise, and epsilon over the rounds of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from securedfl.reporting.figures import GRID, INK, blank, rounds_axis, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Points = tuple[Sequence[float], Sequence[float]]

LINES = {"distributed": ("#0b6e99", "-"), "local": ("#b4531f", "--"), "central": ("#6b7280", ":")}
"""Colour and stroke of each kind of noise."""


@style()
def epsilon_by_noise(curves: Mapping[str, Points], chosen: Points | None = None) -> Figure:
    """Epsilon against the noise in the mean, one line per kind of noise; ``chosen`` marks a plan."""
    figure, axes = blank(3.3)
    for kind, (noise, epsilon) in curves.items():
        colour, stroke = LINES.get(kind, (INK, "-"))
        axes.plot(noise, epsilon, color=colour, linestyle=stroke, linewidth=2.0, label=kind)
    if chosen is not None:
        axes.plot(*chosen, color=INK, marker="o", linestyle="none", markersize=6, label="plan")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("noise in each number of the mean, parts of the clip")
    axes.set_ylabel("epsilon")
    figure.legend(ncols=4, loc="outside upper left", frameon=False, borderaxespad=0)
    return figure


@style()
def epsilon_beside_accuracy(epsilon: Mapping[str, Points], accuracy: Mapping[str, Points]) -> Figure:
    """Epsilon (lines, left) and test accuracy (dotted, right) per round, by the methods' labels."""
    figure, axes = blank(3.3)
    axes.set_ylabel("epsilon spent")
    rounds_axis(axes, ticks=8)
    other = axes.twinx()
    other.set_ylabel("test accuracy, %")
    other.grid(visible=False)
    colours = [colour for colour, _ in LINES.values()]
    for place, (name, (rounds, spent)) in enumerate(epsilon.items()):
        colour = colours[place % len(colours)]
        axes.plot(rounds, spent, color=colour, linewidth=2.0, label=f"{name}: epsilon")
        if name in accuracy:
            x, y = accuracy[name]
            values = [100 * v for v in y]
            other.plot(x, values, color=colour, linestyle=":", linewidth=2.0, label=f"{name}: accuracy")
    axes.set_ylim(bottom=0)
    other.spines["right"].set_visible(True)
    other.spines["right"].set_color(GRID)
    figure.legend(ncols=2, loc="outside upper left", frameon=False, borderaxespad=0)
    return figure
