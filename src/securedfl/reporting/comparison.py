"""How the methods of a run compare: one sentence, key figures and tables."""

from __future__ import annotations

import math

from securedfl.federation.run_folder.reader import MethodResult, Run
from securedfl.reporting.methods import looks
from securedfl.reporting.page import Table, themed
from securedfl.reporting.units import data_size, duration, percent, points, scientific


def result(run: Run) -> str:
    """Return the run's result in one sentence."""
    lead = _leading(run)
    if lead is None and run.started:
        return f"{run.peers} peers have averaged {run.rounds_done} rounds; no test data was there to measure accuracy."
    if lead is None:
        return f"No round has finished yet, so there is no result: {run.peers} peers, {run.rounds} rounds planned."
    where = f"{run.peers} peers" + (f" on {run.dataset}" if run.dataset else "")
    counted = f"{lead.rounds_done} {'round' if lead.rounds_done == 1 else 'rounds'}"
    told = f"With {where}, {lead.label} reached {percent(lead.best_accuracy)} test accuracy in {counted}"
    for rival in _rivals(run, lead):
        difference = lead.best_accuracy - rival.best_accuracy
        compared = f"{points(difference)} {'above' if difference > 0 else 'below'}"
        compared = "the same as" if abs(difference) < 5e-5 else compared
        told += f"{':' if rival.name == 'fedavg' else ','} {compared} {rival.label}"
    return told + "."


def key_figures(run: Run) -> dict[str, str]:
    """Return the large figures below the title, by what they are."""
    lead = _leading(run)
    if lead is None:
        return {}
    figures = {f"best test accuracy, {lead.label}": percent(lead.best_accuracy)}
    for rival in _rivals(run, lead):
        difference = 100 * (lead.best_accuracy - rival.best_accuracy)
        sign = "±" if abs(difference) < 5e-3 else "+" if difference > 0 else "−"
        figures[f"percentage points against {rival.label}"] = f"{sign}{abs(difference):.2f}"
    if math.isfinite(lead.mean_error):
        figures["mean squared error of the average"] = scientific(lead.mean_error)
    if math.isfinite(lead.bytes_per_peer_per_round):
        figures["sent per peer and round"] = data_size(lead.bytes_per_peer_per_round)
    busy = lead.train_seconds + lead.average_seconds
    if math.isfinite(busy) and busy > 0:
        figures["of the time spent on averaging"] = percent(lead.average_seconds / busy, 1)
    return figures


def results_table(run: Run) -> Table:
    """Return the table like the paper's "Best Test Accuracy"."""
    columns = {
        "Method": [m.label for m in run.methods],
        "Best accuracy": [percent(m.best_accuracy) for m in run.methods],
        "Final accuracy": [percent(m.final_accuracy) for m in run.methods],
        "Mean squared error": [scientific(m.mean_error) for m in run.methods],
        "Sent per peer and round": [data_size(m.bytes_per_peer_per_round) for m in run.methods],
        "Training": [duration(m.train_seconds) for m in run.methods],
        "Averaging": [duration(m.average_seconds) for m in run.methods],
    }
    best = max((m.best_accuracy for m in run.methods if math.isfinite(m.best_accuracy)), default=math.nan)
    where = f"{run.peers} peers" + (f", {run.dataset}" if run.dataset else "")
    return Table(
        list(columns),
        list(zip(*columns.values(), strict=True)),
        f"Best test accuracy: {where}",
        colours=[themed(look.colour) for look in looks(m.name for m in run.methods).values()],
        best=[number for number, m in enumerate(run.methods) if m.best_accuracy == best],
    )


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
    rows = [[str(peer), *(percent(values[peer]) for values in padded)] for peer in range(count)]
    return Table(["Peer", *columns], rows, "Test accuracy per peer after the last round")


def rounds_table(run: Run) -> Table:
    """Return the accuracy curves as a table, for readers who cannot see or trust a picture."""
    shown = [(m.label, dict(zip(*m.series("accuracy"), strict=True))) for m in run.methods]
    curves = [curve for _, curve in shown if curve]
    rows = [
        [str(number), *(percent(curve.get(number, math.nan)) for curve in curves)]
        for number in sorted({number for curve in curves for number in curve})
    ]
    return Table(["Round", *(name for name, curve in shown if curve)], rows, "Test accuracy per round")


def _leading(run: Run) -> MethodResult | None:
    """Return the method that the report is about: SecureD-FL where it ran, else the most accurate one."""
    if not run.started:
        return None
    measured = {m.name: m for m in run.methods if math.isfinite(m.best_accuracy)}
    preferred = measured.get("secured") or measured.get("shares")
    return preferred or max(measured.values(), key=lambda m: m.best_accuracy, default=None)


def _rivals(run: Run, lead: MethodResult) -> list[MethodResult]:
    """Return the methods of the paper that the leading one is compared with."""
    found = [run.method(name) for name in ("fedavg", "local") if name != lead.name]
    return [method for method in found if method is not None and math.isfinite(method.best_accuracy)]
