"""How the methods of a run compare: one sentence, key figures and tables."""

from __future__ import annotations

import math
from functools import partial

from securedfl.federation.methods import main_method
from securedfl.federation.run_folder.card import MOST_LISTED, quartiles
from securedfl.federation.run_folder.reader import MethodResult, Run
from securedfl.reporting.methods import looks, themed
from securedfl.reporting.page import Table
from securedfl.reporting.sections.accuracy import (
    FEW,
    Best,
    Tested,
    best,
    difference,
    interval,
    reached,
    views,
    with_interval,
)
from securedfl.reporting.units import NONE, UNBOUNDED, bounded, data_size, duration, percent, points, scientific


def result(run: Run) -> str:
    """Return the run's result in a sentence or two: after the last round, on the most telling test data."""
    found = _headline(run)
    if found is None and run.started:
        return f"{run.peers} peers have averaged {run.rounds_done} rounds; no test data was there to measure accuracy."
    if found is None:
        return f"No round has finished yet, so there is no result: {run.peers} peers, {run.rounds} rounds planned."
    lead, view, value = found
    where = f"{run.peers} peers" + (f" on {run.dataset}" if run.dataset else "")
    between, spent = interval(value, view), epsilon_of(lead)
    told = f"With {where}, {lead.label} {'ended' if run.finished else 'stands'} at {percent(value)} "
    told += (f"(95 % interval {between}) " if between else "") + f"{view.where} after round {lead.rounds_done}"
    if spent:
        told += f", with {'no bound on epsilon' if spent == UNBOUNDED else f'epsilon {spent}'}"
    for at, rival in enumerate(_rivals(run, lead, view)):
        other = reached(run, rival, view)
        compared = f"{points(value - other)} {'above' if value > other else 'below'} {rival.label}"
        if abs(value - other) < 5e-5:
            compared = f"the same as {rival.label}"
        elif _may_be_chance(run, lead, rival, view):
            compared += ", which may be chance"
        told += f"{';' if at else ':'} {compared}"
    few = f" Only {view.samples:,} test samples stand behind these numbers." if 0 < view.samples < FEW else ""
    return f"{told}.{few}"


def key_figures(run: Run) -> dict[str, str]:
    """Return the large figures below the title, by what they are."""
    headline = _headline(run)
    if headline is None:
        return {}
    lead, view, value = headline
    between = interval(value, view)
    about = f"{lead.label} {view.where}, round {lead.rounds_done}"
    figures = {about + (f"; 95 % interval {between} %" if between else ""): percent(value)}
    if found := best(run, lead, view):
        own = "" if found.view == view else f", {found.view.where}"
        figures[f"best round: {found.round}, chosen afterwards{own}"] = percent(found.accuracy)
    if spent := epsilon_of(lead):
        figures[f"epsilon spent by {lead.label}"] = spent
    for rival in _rivals(run, lead, view):
        between_two = 100 * (value - reached(run, rival, view))
        sign = "±" if abs(between_two) < 5e-3 else "+" if between_two > 0 else "−"
        figures[f"percentage points against {rival.label}"] = f"{sign}{abs(between_two):.2f}"
    if math.isfinite(lead.mean_error):
        figures["mean squared error of the average"] = scientific(lead.mean_error)
    if math.isfinite(lead.bytes_per_peer_per_round):
        figures["sent per peer and round"] = data_size(lead.bytes_per_peer_per_round)
    busy = lead.train_seconds + lead.average_seconds
    if math.isfinite(busy) and busy > 0:
        figures["of the time spent on averaging"] = percent(lead.average_seconds / busy, 1)
    return figures


def results_table(run: Run) -> Table:
    """Return the methods by their accuracy after the last round, in all views, with the best round and what it cost."""
    shown, methods = views(run), run.methods
    columns = {"Method": [m.label for m in methods]}
    for at, view in enumerate(shown):
        told = percent if at else partial(with_interval, view=view)
        columns[view.name] = [told(reached(run, m, view)) for m in methods]
    if shown:
        columns["Best round"] = [_best(best(run, m, shown[0]), shown[0]) for m in methods]
    if any(row.epsilon is not None for m in methods for row in m.rounds):
        columns["Epsilon"] = [epsilon_of(m) or NONE for m in methods]
    columns |= {
        "Mean squared error": [scientific(m.mean_error) for m in methods],
        "Sent per peer and round": [data_size(m.bytes_per_peer_per_round) for m in methods],
        "Training": [duration(m.train_seconds) for m in methods],
        "Averaging": [duration(m.average_seconds) for m in methods],
    }
    columns = {name: values for name, values in columns.items() if name == "Method" or set(values) != {NONE}}
    values = [reached(run, m, shown[0]) if shown else math.nan for m in methods]
    most = max(filter(math.isfinite, values), default=math.nan)
    where = f"{run.peers} peers" + (f", {run.dataset}" if run.dataset else "")
    return Table(
        list(columns),
        list(zip(*columns.values(), strict=True)),
        f"Test accuracy after the last round: {where}",
        colours=[themed(look.colour) for look in looks(m.name for m in methods).values()],
        best=[number for number, value in enumerate(values) if value == most],
    )


def _best(found: Best | None, view: Tested) -> str:
    if found is None:
        return NONE
    where = "" if found.view == view else f", {found.view.name}"
    return f"{percent(found.accuracy)} (round {found.round}{where})"


def epsilon_of(method: MethodResult) -> str:
    """Return what a method has spent, in words; empty where nothing is."""
    if all(row.epsilon is None for row in method.rounds):
        return ""
    return bounded(method.rounds[-1].epsilon)


def peers_table(run: Run) -> Table | None:
    """Return each peer's accuracy after the last round, where peers hold different models; None if none do."""
    shown = [m for m in run.methods if m.rounds and m.rounds[-1].peer_accuracy]
    if not any(m.rounds[-1].all_accuracy for m in shown):
        return None
    columns: dict[str, list[float]] = {}
    for method in shown:
        last = method.rounds[-1]
        columns[f"{method.label}, own"] = list(last.peer_accuracy)
        if last.all_accuracy:
            columns[f"{method.label}, all"] = list(last.all_accuracy)
    count = max(map(len, columns.values()))
    padded = [values + [math.nan] * (count - len(values)) for values in columns.values()]
    title = "Test accuracy per peer after the last round"
    if count > MOST_LISTED:
        names = ("least", "lower quartile", "median", "upper quartile", "most")
        spread = [[percent(value) for value in quartiles(values)] or [NONE] * 5 for values in columns.values()]
        return Table([f"Of {count} peers", *columns], list(zip(names, *spread, strict=True)), title)
    rows = [[str(peer), *(percent(values[peer]) for values in padded)] for peer in range(count)]
    return Table(["Peer", *columns], rows, title)


def rounds_table(run: Run) -> Table:
    """Return the accuracy curves as a table, for readers who cannot see or trust a picture."""
    shown = [(m.label, dict(zip(*m.series("accuracy"), strict=True))) for m in run.methods]
    curves = [curve for _, curve in shown if curve]
    rows = [
        [str(number), *(percent(curve.get(number, math.nan)) for curve in curves)]
        for number in sorted({number for curve in curves for number in curve})
    ]
    return Table(["Round", *(name for name, curve in shown if curve)], rows, "Test accuracy per round")


def _headline(run: Run) -> tuple[MethodResult, Tested, float] | None:
    """Return the method that the report is about, and what it reached in which view; None before it was measured."""
    if not run.started:
        return None
    measured: dict[str, tuple[MethodResult, Tested, float]] = {}
    for method in run.methods:
        for view in views(run):
            if math.isfinite(value := reached(run, method, view)):
                measured.setdefault(method.name, (method, view, value))
    return measured[main_method(tuple(measured))] if measured else None


def _rivals(run: Run, lead: MethodResult, view: Tested) -> list[MethodResult]:
    """Return the methods of the paper that the leading one is compared with: on test data of others, or not at all."""
    found = [run.method(name) for name in ("fedavg", "local") if name != lead.name and view.name != "Own"]
    return [method for method in found if method is not None and math.isfinite(reached(run, method, view))]


def _may_be_chance(run: Run, first: MethodResult, second: MethodResult, view: Tested) -> bool:
    """Tell whether other test samples might have turned a difference around."""
    between = difference(run, first, second, view)
    return between is not None and between[0] < 0 < between[1]
