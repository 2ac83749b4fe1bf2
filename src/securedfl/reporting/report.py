"""Write a run's report: one HTML file that needs nothing but a browser."""

from __future__ import annotations

from pathlib import Path

from securedfl.federation.run_folder.reader import Run, read_run
from securedfl.reporting import assurance, meetings, parts, sections
from securedfl.storage import write_text

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
    """
    page = render(read_run(run_dir))
    path = Path(run_dir) / "report.html"
    write_text(path, page, "free some space or check the permissions, then use `securedfl report`")
    return path


def render(run: Run) -> str:
    """Return the report as text."""
    title = f"{run.dataset or 'Training'} with {run.peers} peers"
    return parts.page(
        title=title[:1].upper() + title[1:],
        eyebrow=f"<span>SecureD-FL run <code>{parts.text(run.name)}</code></span> {_status(run)}",
        result=sections.result(run),
        banners=assurance.exposure_banner(run) + _unfinished_banner(run),
        tiles=sections.key_figures(run),
        contents=_CONTENTS,
        sections=[
            sections.accuracy_section(run),
            sections.averaging_section(run),
            meetings.design_section(run),
            assurance.privacy_section(run),
            sections.repeat_section(run),
        ],
        source="this run folder's files",
    )


def _status(run: Run) -> str:
    if run.finished:
        return parts.badge("finished")
    return parts.badge(f"unfinished: {run.rounds_done} of {run.rounds} rounds", "warn")


def _unfinished_banner(run: Run) -> str:
    if run.finished:
        return ""
    done = ", ".join(f"{method.label} {method.rounds_done}" for method in run.methods) or "none"
    return parts.banner(
        "This run is unfinished.",
        f"Rounds done, of {run.rounds}: {done}. The figures may still change. In its folder, continue with",
        command="securedfl train --resume .",
    )
