"""``securedfl train``: a simulated federation."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from securedfl.cli.options import AsJson, ConfigFile, checked, merged, with_settings
from securedfl.cli.progress import progress_on
from securedfl.cli.report import report_of
from securedfl.cli.watch import Watch, watching
from securedfl.errors import AppError, ConfigError, needing
from securedfl.federation.results import default_folder
from securedfl.federation.run_folder.summary import Summary
from securedfl.reporting.units import data_size, percent


@with_settings()
def train(
    config: ConfigFile = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Continue the run in this folder; with --rounds, extend it."),
    ] = None,
    as_json: AsJson = False,
    watch: Watch = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a simulated federation and compare methods, as the paper's evaluation does.

    Every option is also a key of the TOML file (docs/reference/configuration.md).

    **Examples**

    - `securedfl train` : digits, 9 peers, 20 rounds, Local-Only, FedAvg and SecureD-FL
    - `securedfl train --peers 15 --dealing dirichlet --alpha 0.3 --out runs/uneven`
    - `securedfl train --entry app:make --peers 9` : your own model, data and update (docs/guides/own-models.md)
    - `securedfl train --peers 1000 --peers-per-round 100 --held-back 0.1 --methods fedavg,secured` : very many peers
    - `securedfl train --dataset ./wine --label cultivar` : a folder of CSV, parquet or images (docs/guides/data.md)
    - `securedfl train my.toml --seed 1 --json > summary.json`
    - `securedfl train --engine ray --address auto` : on the nodes of a Ray cluster (docs/guides/cluster.md)
    - `securedfl train --resume runs/uneven --rounds 50` : 30 rounds more
    """
    console = Console(stderr=as_json, highlight=False, emoji=False)
    values = merged(config, settings)
    if resume is not None and "out" in settings:
        raise ConfigError(f"--resume continues in {resume}; leave --out away")
    if resume is None:
        settled = checked(config, values)
        if watch:
            settled = settled.model_copy(update={"out": settled.out or default_folder(settled)})
    waiting = console.status("Starting ...") if console.is_terminal else nullcontext()
    # torch takes seconds
    with waiting, needing("training"):
        from securedfl.federation.train import resume as go_on
        from securedfl.federation.train import train as start
    place = resume or settled.out
    with watching(place if watch else None, console), progress_on(console) as progress:
        try:
            with report_of(progress):
                if resume is None:
                    summary = start(settled, observer=progress)
                else:
                    values.pop("out", None)
                    summary = go_on(resume, changes=values, observer=progress)
        except (KeyboardInterrupt, AppError):
            if progress.folder is not None:
                console.print(f"Continue with: securedfl train --resume {progress.folder}", soft_wrap=True)
            raise
    tell(summary, console, as_json=as_json)


def tell(summary: Summary, console: Console, *, as_json: bool) -> None:
    """Print the summary as JSON, or a table like the paper's "Best Test Accuracy Over Training"."""
    if as_json:
        typer.echo(json.dumps(summary.to_dict(), indent=2))
        return
    # as wide as a terminal of 80 columns, mostly
    table = Table(title="Best Test Accuracy", title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("Method", no_wrap=True)
    both = any(method.all_accuracy is not None for method in summary.methods.values())
    common = any(method.final_common_accuracy is not None for method in summary.methods.values())
    views = (*(["All"] if both else []), *(["Common"] if common else []))
    spends = any(method.epsilon is not None for method in summary.methods.values())
    last = ["Epsilon"] if spends else []
    for column in ("Best", "Final", *views, "Error", "Sent", "Training", "Averaging", *last):
        table.add_column(column, justify="right", no_wrap=True)
    for method in summary.methods.values():
        sent = method.bytes_per_peer_per_round
        table.add_row(
            method.label,
            _shown(method.best_accuracy, percent),
            _shown(method.final_accuracy, percent),
            *([_shown(method.all_accuracy or method.final_accuracy, percent)] if both else []),
            *([_shown(method.final_common_accuracy, percent)] if common else []),
            _shown(method.mean_error, "{:.1e}".format),
            _shown(sent or None, data_size),
            _shown(method.train_seconds, "{:.1f} s".format),
            _shown(method.average_seconds if sent else None, "{:.2f} s".format),
            *([_shown(method.epsilon, "{:.3g}".format)] if spends else []),
        )
    # a narrow terminal wraps lines, which is better than numbers that are cut off
    console.width = max(console.width, Measurement.get(console, console.options.update(max_width=200), table).maximum)
    console.print(table)
    console.print(
        f"{summary.dataset}, {summary.peers} peers, {summary.samples.test} test samples. "
        "Best, Final: each peer's model on its own test data. "
        + ("All: each peer's final model on the test data of all peers, the mean. " if both else "")
        + ("Common: final, on test data that no peer has. " if common else "")
        + "Error: mean squared, per average. Sent: by a peer, per average.",
        soft_wrap=True,
    )
    console.print(f"Report: {Path(summary.run_dir) / 'report.html'}", markup=False, soft_wrap=True)
    console.print(f"Model: securedfl.load({summary.run_dir!r})", markup=False, soft_wrap=True)


def _shown(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)
