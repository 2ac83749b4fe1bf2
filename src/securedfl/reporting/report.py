"""A run's report: one HTML file that needs nothing but a browser."""

from __future__ import annotations

import shlex
from pathlib import Path

from securedfl.designs.drawing import design_caption, design_svg
from securedfl.federation.run_folder.reader import Run, read_run, run_folder
from securedfl.reporting.page import Page, rendered
from securedfl.reporting.sections import accuracy, comparison, data, privacy, timeline
from securedfl.reporting.sections.charts import charts
from securedfl.reporting.units import NONE
from securedfl.storage import write_text

MOST_PARTITIONS_LISTED = 60

_CONTENTS = {
    "data": "Data",
    "accuracy": "Accuracy",
    "rounds": "Rounds",
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
        What ``securedfl train --out`` or a real peer wrote; of a peer, the folder ``state`` in it will do, too.

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
    path = run_folder(Path(run_dir)) / "report.html"
    write_text(path, text, "{mend}, then use `securedfl report`")
    return path


def report(run: Run) -> str:
    """Return the report as text."""
    title = f"{run.dataset or 'Training'} with {run.peers} peers" + (f", seen from {run.site}" if run.site else "")
    happened = timeline.moments(run)
    page = Page(
        title=title[:1].upper() + title[1:],
        result=comparison.result(run),
        tiles=comparison.key_figures(run),
        contents={anchor: heading for anchor, heading in _CONTENTS.items() if anchor != "rounds" or happened},
        source="this run folder's files",
    )
    elsewhere = f" --out ../{shlex.quote(run.name + '-again')}" if "out" in run.settings else ""
    protocol, finish = run.settings.get("protocol"), run.settings.get("finish")
    exact = protocol == "grouped" or (finish == "exact" and protocol in ("paper", "classic"))
    shown = accuracy.views(run)
    return rendered(
        "run.html",
        page=page,
        run=run,
        data=data.facts(run),
        held=data.held_svg(run),
        held_caption=data.caption(run),
        results=comparison.results_table(run),
        rounds=comparison.rounds_table(run),
        peers=comparison.peers_table(run),
        explained=accuracy.explained(shown),
        compared=len({view.name for view in shown}) > 1 and run.method("local") is not None,
        sureness=accuracy.sureness(shown),
        charts=charts(run),
        moments=happened,
        happened=timeline.sentence(happened) if happened else "",
        timeline=timeline.timeline_svg(run, happened),
        timeline_table=timeline.rounds_table(run, happened),
        exact_finish=exact,
        drawing=design_svg(run.design) if run.design else "",
        drawing_caption=design_caption(run.design) if run.design else "",
        listed=range(min(run.design.gap, MOST_PARTITIONS_LISTED)) if run.design else (),
        assurances=privacy.assurances(run),
        remarks=privacy.remarks(run),
        exposure_allowed=privacy.exposure_allowed(run),
        ledger=privacy.ledger_table(run),
        again=_again(run),
        command=f"securedfl {'up' if run.trial else 'train'} config.toml{elsewhere}" if not run.site else _again(run),
        about={
            "Seed": run.seed if run.seed is not None else NONE,
            **run.summary.versions,
        },
    )


def _again(run: Run) -> str:
    """Return what continues a run that was stopped."""
    if run.site:
        return "securedfl peer peer.toml"
    return "securedfl peer federation/peer-0.toml" if run.trial else "securedfl train --resume ."
