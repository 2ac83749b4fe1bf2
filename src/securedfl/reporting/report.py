"""A run's report: one HTML file that needs nothing but a browser."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from securedfl.designs.drawing import design_svg
from securedfl.federation.run_folder.card import ALL, OWN
from securedfl.federation.run_folder.reader import Run, read_run
from securedfl.reporting import comparison, privacy
from securedfl.reporting.charts import charts
from securedfl.reporting.page import Page, render
from securedfl.reporting.units import NONE
from securedfl.storage import write_text

MOST_PEERS_DRAWN, MOST_PARTITIONS_DRAWN, MOST_PARTITIONS_LISTED = 120, 12, 60

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
        What ``securedfl train --out`` or a real peer wrote.

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
    site = str(run.summary.get("site") or "")
    title = f"{run.dataset or 'Training'} with {run.peers} peers" + (f", seen from {site}" if site else "")
    page = Page(
        title=title[:1].upper() + title[1:],
        result=comparison.result(run),
        tiles=comparison.key_figures(run),
        contents=_CONTENTS,
        source="this run folder's files",
    )
    elsewhere = f" --out ../{shlex.quote(run.name + '-again')}" if "out" in run.settings else ""
    versions = run.summary.get("versions")
    drawn = min(run.design.gap, MOST_PARTITIONS_DRAWN) if run.design and run.design.n <= MOST_PEERS_DRAWN else 0
    protocol, finish = run.settings.get("protocol"), run.settings.get("finish")
    exact = protocol == "grouped" or (finish == "exact" and protocol in ("paper", "classic"))
    return render(
        "run.html",
        page,
        run=run,
        results=comparison.results_table(run),
        rounds=comparison.rounds_table(run),
        peers=comparison.peers_table(run),
        views=(OWN, ALL),
        charts=charts(run),
        exact_finish=exact,
        drawn=drawn,
        drawing=design_svg(run.design.first(drawn)) if run.design and drawn else "",
        listed=range(min(run.design.gap, MOST_PARTITIONS_LISTED)) if run.design else (),
        assurances=privacy.assurances(run),
        exposure_allowed=privacy.exposure_allowed(run),
        ledger=privacy.ledger_table(run),
        ledger_facts=privacy.ledger_facts(run),
        command="securedfl peer peer.toml" if site else f"securedfl train config.toml{elsewhere}",
        about={
            "Seed": run.seed if run.seed is not None else NONE,
            **(versions if isinstance(versions, Mapping) else {}),
        },
    )
