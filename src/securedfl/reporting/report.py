"""A run's report: one HTML file that needs nothing but a browser."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from securedfl.designs import Design
from securedfl.federation.files import write_text
from securedfl.reporting import charts, comparison, privacy
from securedfl.reporting.page import Page, render
from securedfl.reporting.runs import Run, read_run
from securedfl.reporting.units import NONE

MOST_PARTITIONS_LISTED = 60

_CONTENTS = {
    "accuracy": "Accuracy",
    "averaging": "Averaging",
    "design": "Design",
    "privacy": "Privacy",
    "repeat": "Repeat this run",
}


def write_report(run_dir: Path) -> Path:
    """Write ``report.html`` into a run folder, from that folder's files alone.

    The same files give the same page, byte for byte. An unfinished run is labelled as such.

    Parameters
    ----------
    run_dir
        What ``securedfl train --out`` wrote.

    Returns
    -------
    Path
        The report.

    Raises
    ------
    RunFolderError
        A file of the run is missing or damaged, or the report cannot be written; an older report is left as it is.
    MissingDependencyError
        matplotlib or jinja2 is not installed.
    """
    text = report(read_run(run_dir))
    path = Path(run_dir) / "report.html"
    write_text(path, text, "free some space or check the permissions, then use `securedfl report`")
    return path


def report(run: Run) -> str:
    """Return the report as text."""
    title = f"{run.dataset or 'Training'} with {run.peers} peers"
    page = Page(
        title=title[:1].upper() + title[1:],
        result=comparison.result(run),
        tiles=comparison.key_figures(run),
        contents=_CONTENTS,
        source="this run folder's files",
    )
    elsewhere = f" --out ../{shlex.quote(run.name + '-again')}" if "out" in run.settings else ""
    versions = run.summary.get("versions")
    return render(
        "run.html",
        page,
        run=run,
        results=comparison.results_table(run),
        rounds=comparison.rounds_table(run),
        learning=charts.learning_charts(run) if run.started else [],
        errors=charts.error_charts(run) if run.started else [],
        costs=charts.cost_charts(run) if run.started else [],
        design_lead=_lead(run.design) if run.design else "",
        design_picture=charts.design_picture(run.design) if run.design else None,
        groups=_groups(run.design) if run.design else {},
        assurances=privacy.assurances(run),
        exposure_allowed=privacy.exposure_allowed(run),
        exposure_picture=privacy.exposure_picture(run),
        ledger=privacy.ledger_table(run),
        ledger_facts=privacy.ledger_facts(run),
        command=f"securedfl train config.toml{elsewhere}",
        about={
            "Seed": run.seed if run.seed is not None else NONE,
            **(versions if isinstance(versions, Mapping) else {}),
        },
    )


def _lead(design: Design) -> str:
    sizes = " and ".join(str(size) for size in design.sizes)
    counted = "1 partition" if design.gap == 1 else f"{design.gap} partitions"
    return f"{design.n} peers meet in groups of {sizes}. In {counted} no two peers meet twice."


def _groups(design: Design) -> dict[str, str]:
    """Return the groups of each partition in words."""
    partitions = (design.partition(i) for i in range(min(design.gap, MOST_PARTITIONS_LISTED)))
    return {
        f"Partition {number}": "; ".join(" ".join(map(str, group)) for group in partition)
        for number, partition in enumerate(partitions, start=1)
    }
