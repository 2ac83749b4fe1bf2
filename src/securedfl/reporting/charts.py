"""The charts of a run's report, and the picture of who meets whom; what was not measured has none."""

from __future__ import annotations

import math

from securedfl.designs import Design
from securedfl.designs.drawing import draw_svg
from securedfl.reporting import figures
from securedfl.reporting.figures import Series
from securedfl.reporting.page import Chart, Picture, chart
from securedfl.reporting.runs import Run
from securedfl.reporting.units import data_size, duration, percent

MOST_PEERS_DRAWN = 120
MOST_PARTITIONS_DRAWN = 12


def learning_charts(run: Run) -> list[Chart]:
    """Return accuracy and loss per round, and the accuracy of each peer."""
    return [*_accuracy(run), *_loss(run), *_peers(run)]


def error_charts(run: Run) -> list[Chart]:
    """Return the error of the average per round."""
    error = _series(run, "error_mse")
    if not error:
        return []
    caption = "Against the true mean of all peers' parameters."
    if run.settings.get("finish") == "exact" and run.settings.get("protocol") in ("grouped", "classic"):
        caption += " With the exact finish only rounding remains."
    description = "Line chart of the mean squared error of the average per round, on a logarithmic scale."
    return [chart("Error of the average", caption, figures.error_curves(error), "error", description)]


def cost_charts(run: Run) -> list[Chart]:
    """Return what averaging costs to send and how long it takes."""
    return [*_traffic(run), *_time(run)]


def design_picture(design: Design) -> Picture | None:
    """Return the drawing like the paper's Figure 1, or None if there are too many peers for it."""
    if design.n > MOST_PEERS_DRAWN:
        return None
    drawn = min(design.gap, MOST_PARTITIONS_DRAWN)
    caption = "One circle of peers per partition; a polygon joins the peers of a group."
    if drawn < design.gap:
        caption += f" The first {drawn} of {design.gap} partitions."
    description = f"{drawn} partitions of {design.n} peers, each drawn as polygons on a circle of peers."
    return Picture("Who meets whom", caption, draw_svg(design.first(drawn)), description)


def _accuracy(run: Run) -> list[Chart]:
    accuracy = _series(run, "accuracy")
    if not accuracy:
        return []
    caption = "Over all peers' own test data."
    if any(rounds[0] == 0 for rounds, _ in accuracy.values()):
        caption += " Round 0 is before training."
    told = "; ".join(f"{m.label} ends at {percent(m.final_accuracy)}" for m in run.methods if m.rounds)
    description = f"Line chart of test accuracy per round: {told}."
    whole = figures.accuracy_curves(accuracy)
    charts = [chart("Accuracy per round", caption, whole, "accuracy", description)]
    if figures.has_closeup(accuracy):
        caption = "The same curves where they part."
        description = "The upper part of the line chart of test accuracy, enlarged."
        closeup = figures.accuracy_curves(accuracy, closeup=True)
        charts.append(chart("The upper end, enlarged", caption, closeup, "closeup", description))
    return charts


def _loss(run: Run) -> list[Chart]:
    loss = _series(run, "loss")
    if not loss:
        return []
    caption = "Over all peers' own test data; lower is better."
    description = "Line chart of test loss per round."
    return [chart("Loss per round", caption, figures.loss_curves(loss), "loss", description)]


def _peers(run: Run) -> list[Chart]:
    last = {m.name: m.rounds[-1].peer_accuracy for m in run.methods if m.rounds}
    finite = {name: [v for v in values if math.isfinite(v)] for name, values in last.items()}
    shown = {name: values for name, values in finite.items() if values}
    if not shown:
        return []
    caption = "One dot per peer after the last round; the bar is the median."
    spread = "; ".join(
        f"{m.label} from {percent(min(shown[m.name]), 1)} to {percent(max(shown[m.name]), 1)}"
        for m in run.methods
        if m.name in shown
    )
    description = f"Dot plot of each peer's test accuracy: {spread}."
    return [chart("Accuracy per peer", caption, figures.peer_strip(shown), "peers", description)]


def _traffic(run: Run) -> list[Chart]:
    sizes = _finite(run, "bytes_per_peer_per_round")
    if not any(sizes.values()):
        return []
    told = ", ".join(f"{m.label} {data_size(sizes[m.name])}" for m in run.methods if m.name in sizes)
    description = f"Bar chart of the bytes that one peer sends per round: {told}."
    caption = "What one peer sends in one round."
    return [chart("Traffic", caption, figures.traffic_bars(sizes), "traffic", description)]


def _time(run: Run) -> list[Chart]:
    train, average = _finite(run, "train_seconds"), _finite(run, "average_seconds")
    both = [m for m in run.methods if m.name in train and m.name in average]
    if not any(train[m.name] + average[m.name] for m in both):
        return []
    told = ", ".join(f"{m.label} {duration(m.train_seconds)} and {duration(m.average_seconds)}" for m in both)
    figure = figures.time_bars({m.name: train[m.name] for m in both}, {m.name: average[m.name] for m in both})
    caption = "Local training and averaging, in all rounds together."
    description = f"Bar chart of the times of training and of averaging: {told}."
    return [chart("Time", caption, figure, "time", description)]


def _series(run: Run, key: str) -> dict[str, Series]:
    found = {method.name: method.series(key) for method in run.methods}
    return {name: series for name, series in found.items() if series[0]}


def _finite(run: Run, key: str) -> dict[str, float]:
    return {m.name: getattr(m, key) for m in run.methods if math.isfinite(getattr(m, key))}
