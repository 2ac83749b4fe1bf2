"""The charts of a run's report, as parts of its page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from securedfl.federation.run_folder.reader import Run
from securedfl.reporting import budget, figures
from securedfl.reporting.figures import Series
from securedfl.reporting.svg import inline
from securedfl.reporting.units import data_size, duration, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("common", "accuracy", "closeup", "loss", "peers", "error", "traffic", "time", "epsilon")


def charts(run: Run) -> dict[str, str]:
    """Return each chart by its name, as SVG with a description for screen readers; empty if it was not measured."""
    drawn = _learning(run) | _averaging(run) if run.started else {}
    return {name: inline(drawn[name][0], name, drawn[name][1]) if name in drawn else "" for name in NAMES}


def _learning(run: Run) -> dict[str, tuple[Figure, str]]:
    drawn = {}
    accuracy, loss = _series(run, "accuracy"), _series(run, "loss")
    if common := _series(run, "common_accuracy"):
        told = "Line chart of test accuracy per round, on the common test set."
        drawn["common"] = figures.accuracy_curves(common), told
    if accuracy:
        ends = "; ".join(f"{m.label} ends at {percent(m.final_accuracy)}" for m in run.methods if m.rounds)
        told = f"Line chart of test accuracy per round: {ends}."
        drawn["accuracy"] = figures.accuracy_curves(accuracy), told
    if figures.has_closeup(accuracy):
        told = "The upper part of the line chart of test accuracy, enlarged."
        drawn["closeup"] = figures.accuracy_curves(accuracy, closeup=True), told
    if loss:
        drawn["loss"] = figures.loss_curves(loss), "Line chart of test loss per round."
    if spent := {m.label: m.series("epsilon") for m in run.methods if m.series("epsilon")[0]}:
        reached = {m.label: m.series("accuracy") for m in run.methods}
        ends = "; ".join(f"{name} ends at epsilon {values[-1]:.3g}" for name, (_, values) in spent.items())
        told = f"Line chart of epsilon and of test accuracy per round: {ends}."
        drawn["epsilon"] = budget.epsilon_beside_accuracy(spent, reached), told
    last = [(m, [v for v in m.rounds[-1].peer_accuracy if math.isfinite(v)]) for m in run.methods if m.rounds]
    peers = [(method, values) for method, values in last if values]
    if peers:
        ends = "; ".join(f"{m.label} from {percent(min(v), 1)} to {percent(max(v), 1)}" for m, v in peers)
        dots = figures.peer_strip({method.name: values for method, values in peers})
        drawn["peers"] = dots, f"Dot plot of each peer's test accuracy: {ends}."
    return drawn


def _averaging(run: Run) -> dict[str, tuple[Figure, str]]:
    drawn = {}
    error, sizes = _series(run, "error_mse"), _finite(run, "bytes_per_peer_per_round")
    if error:
        told = "Line chart of the mean squared error of the average per round, on a logarithmic scale."
        drawn["error"] = figures.error_curves(error), told
    if any(sizes.values()):
        sent = ", ".join(f"{m.label} {data_size(sizes[m.name])}" for m in run.methods if m.name in sizes)
        told = f"Bar chart of the bytes that one peer sends per round: {sent}."
        drawn["traffic"] = figures.traffic_bars(sizes), told
    train, average = _finite(run, "train_seconds"), _finite(run, "average_seconds")
    both = [m for m in run.methods if m.name in train and m.name in average]
    if any(train[m.name] + average[m.name] for m in both):
        times = (f"{m.label} {duration(m.train_seconds)} and {duration(m.average_seconds)}" for m in both)
        told = f"Bar chart of the times of training and of averaging: {', '.join(times)}."
        bars = figures.time_bars(*({m.name: each[m.name] for m in both} for each in (train, average)))
        drawn["time"] = bars, told
    return drawn


def _series(run: Run, key: str) -> dict[str, Series]:
    found = {method.name: method.series(key) for method in run.methods}
    return {name: series for name, series in found.items() if series[0]}


def _finite(run: Run, key: str) -> dict[str, float]:
    return {m.name: getattr(m, key) for m in run.methods if math.isfinite(getattr(m, key))}
