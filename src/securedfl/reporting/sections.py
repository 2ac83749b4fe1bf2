"""The report's sections on learning, averaging, peers and how to repeat the run."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from securedfl.federation.run_folder.reader import MethodResult, Run
from securedfl.reporting import figures, parts
from securedfl.reporting.figures import Series
from securedfl.reporting.methods import looks
from securedfl.reporting.svg import inline_svg
from securedfl.reporting.units import NONE, data_size, duration, percent, points, scientific

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_NOTHING_YET = '<p class="card">Figures appear here after the first round.</p>'


def leading(run: Run) -> MethodResult | None:
    """Return the method that the report is about: SecureD-FL where it ran, else the most accurate one."""
    for name in ("secured", "shares"):
        method = run.method(name)
        if method is not None and math.isfinite(method.best_accuracy):
            return method
    measured = [m for m in run.methods if math.isfinite(m.best_accuracy)]
    return max(measured, key=lambda m: m.best_accuracy, default=None)


def result(run: Run) -> str:
    """Return the run's result in one sentence."""
    lead = leading(run)
    if lead is None or not run.started:
        return f"No round has finished yet, so there is no result: {run.peers} peers, {run.rounds} rounds planned."
    where = f"{run.peers} peers" + (f" on {run.dataset}" if run.dataset else "")
    counted = f"{lead.rounds_done} {'round' if lead.rounds_done == 1 else 'rounds'}"
    told = f"With {where}, {lead.label} reached {percent(lead.best_accuracy)} test accuracy in {counted}"
    told += "".join(_compared(lead, run.method(name), start) for name, start in _RIVALS if lead.name != name)
    return told + "."


_RIVALS = (("fedavg", ": "), ("local", ", "))


def _compared(lead: MethodResult, rival: MethodResult | None, start: str) -> str:
    if rival is None or not math.isfinite(rival.best_accuracy):
        return ""
    difference = lead.best_accuracy - rival.best_accuracy
    if abs(difference) < 5e-5:
        return f"{start}the same as {rival.label}"
    return f"{start}{points(difference)} {'above' if difference > 0 else 'below'} {rival.label}"


def key_figures(run: Run) -> str:
    """Return the large figures below the title."""
    lead = leading(run)
    if lead is None or not run.started:
        return ""
    entries = [(percent(lead.best_accuracy), f"best test accuracy, {lead.label}")]
    for name in ("fedavg", "local"):
        rival = run.method(name)
        if rival is not None and rival is not lead and math.isfinite(rival.best_accuracy):
            difference = 100 * (lead.best_accuracy - rival.best_accuracy)
            sign = "±" if abs(difference) < 5e-3 else "+" if difference > 0 else "−"
            entries.append((f"{sign}{abs(difference):.2f}", f"percentage points against {rival.label}"))
    if math.isfinite(lead.mean_error):
        entries.append((scientific(lead.mean_error), "mean squared error of the average"))
    if math.isfinite(lead.bytes_per_peer_per_round):
        entries.append((data_size(lead.bytes_per_peer_per_round), "sent per peer and round"))
    busy = lead.train_seconds + lead.average_seconds
    if math.isfinite(busy) and busy > 0:
        entries.append((percent(lead.average_seconds / busy, 1), "of the time spent on averaging"))
    return parts.tiles(entries)


def accuracy_section(run: Run) -> str:
    """Return the table like the paper's "Best Test Accuracy" and the curves per round."""
    accuracy = _series(run, "accuracy")
    folded = parts.folded("All rounds in numbers", _rounds_table(accuracy, run)) if run.started else ""
    table = f'<div class="card">{_table(run)}{folded}</div>'
    if not run.started:
        return parts.section("accuracy", "Accuracy", table, _NOTHING_YET)
    charts = (*_accuracy_charts(run, accuracy), _loss_chart(run), _peers_chart(run))
    return parts.section("accuracy", "Accuracy", table, parts.grid(*charts))


def _accuracy_charts(run: Run, accuracy: Mapping[str, Series]) -> list[str]:
    if not accuracy:
        return []
    caption = "Over all peers' own test data."
    if any(rounds[0] == 0 for rounds, _ in accuracy.values()):
        caption += " Round 0 is before training."
    told = "; ".join(f"{m.label} ends at {percent(m.final_accuracy)}" for m in run.methods if m.rounds)
    charts = [
        _chart(
            "Accuracy per round", caption, figures.accuracy_curves(accuracy), "accuracy",
            f"Line chart of test accuracy per round: {told}.",
        )
    ]  # fmt: skip
    if figures.has_closeup(accuracy):
        charts.append(_chart(
            "The upper end, enlarged", "The same curves where they part.",
            figures.accuracy_curves(accuracy, closeup=True), "closeup",
            "The upper part of the line chart of test accuracy, enlarged.",
        ))  # fmt: skip
    return charts


def _loss_chart(run: Run) -> str:
    loss = _series(run, "loss")
    if not loss:
        return ""
    return _chart(
        "Loss per round", "Over all peers' own test data; lower is better.", figures.loss_curves(loss), "loss",
        "Line chart of test loss per round.",
    )  # fmt: skip


def averaging_section(run: Run) -> str:
    """Return the error of the average, what it costs to send and how long it takes."""
    if not run.started:
        return parts.section("averaging", "Averaging", _NOTHING_YET)
    costs = _traffic_chart(run) + _time_chart(run)
    body = parts.grid(_error_chart(run), f'<div class="stack">{costs}</div>' if costs else "")
    return parts.section("averaging", "Averaging", body or '<p class="card">Nothing was averaged.</p>')


def _error_chart(run: Run) -> str:
    error = _series(run, "error_mse")
    if not error:
        return ""
    caption = "Against the true mean of all peers' parameters."
    if run.settings.get("finish") == "exact" and run.settings.get("protocol") in ("grouped", "classic"):
        caption += " With the exact finish only rounding remains."
    return _chart(
        "Error of the average", caption, figures.error_curves(error), "error",
        "Line chart of the mean squared error of the average per round, on a logarithmic scale.",
    )  # fmt: skip


def _traffic_chart(run: Run) -> str:
    sizes = _finite(run, "bytes_per_peer_per_round")
    if not any(sizes.values()):
        return ""
    told = ", ".join(f"{m.label} {data_size(sizes[m.name])}" for m in run.methods if m.name in sizes)
    return _chart(
        "Traffic", "What one peer sends in one round.", figures.traffic_bars(sizes), "traffic",
        f"Bar chart of the bytes that one peer sends per round: {told}.",
    )  # fmt: skip


def _time_chart(run: Run) -> str:
    train, average = _finite(run, "train_seconds"), _finite(run, "average_seconds")
    both = [m for m in run.methods if m.name in train and m.name in average]
    if not any(train[m.name] + average[m.name] for m in both):
        return ""
    told = ", ".join(f"{m.label} {duration(m.train_seconds)} and {duration(m.average_seconds)}" for m in both)
    figure = figures.time_bars({m.name: train[m.name] for m in both}, {m.name: average[m.name] for m in both})
    return _chart(
        "Time", "Local training and averaging, in all rounds together.", figure, "time",
        f"Bar chart of the times of training and of averaging: {told}.",
    )  # fmt: skip


def repeat_section(run: Run) -> str:
    """Return command, seed, versions and configuration."""
    elsewhere = f" --out ../{shlex.quote(run.name + '-again')}" if "out" in run.settings else ""
    command = f"<pre><code>{parts.text(f'securedfl train config.toml{elsewhere}')}</code></pre>"
    versions = run.summary.get("versions")
    about: dict[str, object] = {"Seed": run.seed if run.seed is not None else NONE}
    if isinstance(versions, Mapping):
        about |= {str(name): version for name, version in versions.items()}
    config = parts.folded("Configuration (config.toml)", f"<pre><code>{parts.text(run.config)}</code></pre>")
    content = f'<div class="card"><p>In this run\'s folder:</p>{command}{parts.facts(about)}{config}</div>'
    return parts.section("repeat", "Repeat this run", content)


def _table(run: Run) -> str:
    best = max((m.best_accuracy for m in run.methods if math.isfinite(m.best_accuracy)), default=math.nan)
    heads = (
        "Best accuracy",
        "Final accuracy",
        "Mean squared error",
        "Sent per peer and round",
        "Training",
        "Averaging",
    )
    rows = []
    for method, look in zip(run.methods, looks(m.name for m in run.methods).values(), strict=True):
        values = (
            percent(method.best_accuracy), percent(method.final_accuracy), scientific(method.mean_error),
            data_size(method.bytes_per_peer_per_round), duration(method.train_seconds),
            duration(method.average_seconds),
        )  # fmt: skip
        marks = ("best" if method.best_accuracy == best else "", "", "", "", "", "")
        cells = "".join(
            f'<td role="cell" data-label="{head}"><span class="{mark}">{parts.text(value)}</span></td>'
            for head, value, mark in zip(heads, values, marks, strict=True)
        )
        name = f"{parts.swatch(look.colour)}{parts.text(method.label)}"
        rows.append(f'<tr role="row"><th scope="row" role="rowheader">{name}</th>{cells}</tr>')
    columns = "".join(f'<th scope="col" role="columnheader">{head}</th>' for head in ("Method", *heads))
    if not rows:
        return "<p>No method has finished a round.</p>"
    where = f"{run.peers} peers" + (f", {run.dataset}" if run.dataset else "")
    return (
        f'<table class="results" role="table"><caption>Best test accuracy: {parts.text(where)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{columns}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table>'
    )


def _rounds_table(accuracy: Mapping[str, Series], run: Run) -> str:
    """Return the accuracy curves as a table, for readers who cannot see or trust a picture."""
    shown = [m for m in run.methods if m.name in accuracy]
    by_round = {m.name: dict(zip(*accuracy[m.name], strict=True)) for m in shown}
    head = "".join(f'<th scope="col">{parts.text(m.label)}</th>' for m in shown)
    body = "".join(
        f'<tr><th scope="row">{r}</th>'
        + "".join(f"<td>{percent(by_round[m.name].get(r, math.nan))}</td>" for m in shown)
        + "</tr>"
        for r in sorted({r for rounds in by_round.values() for r in rounds})
    )
    return (
        '<div class="scroll"><table><caption>Test accuracy per round</caption>'
        f'<thead><tr><th scope="col">Round</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _peers_chart(run: Run) -> str:
    last = {
        m.name: m.rounds[-1].peer_accuracy for m in run.methods if m.rounds and m.rounds[-1].peer_accuracy
    }
    finite = {name: [v for v in values if math.isfinite(v)] for name, values in last.items()}
    shown = {name: values for name, values in finite.items() if values}
    if not shown:
        return ""
    spread = "; ".join(
        f"{m.label} from {percent(min(shown[m.name]), 1)} to {percent(max(shown[m.name]), 1)}"
        for m in run.methods if m.name in shown
    )  # fmt: skip
    return _chart(
        "Accuracy per peer", "One dot per peer after the last round; the bar is the median.",
        figures.peer_strip(shown), "peers", f"Dot plot of each peer's test accuracy: {spread}.",
    )  # fmt: skip


def _chart(title: str, caption: str, figure: Figure, prefix: str, description: str) -> str:
    svg = inline_svg(figure, prefix=prefix, description=description, colours=parts.theme_colours())
    return parts.chart(title, caption, svg)


def _series(run: Run, key: str) -> dict[str, Series]:
    found = {method.name: method.series(key) for method in run.methods}
    return {name: series for name, series in found.items() if series[0]}


def _finite(run: Run, key: str) -> dict[str, float]:
    return {m.name: getattr(m, key) for m in run.methods if math.isfinite(getattr(m, key))}
