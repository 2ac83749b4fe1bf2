"""``securedfl report``: write a run's HTML report again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from securedfl.federation.observer import Observer


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run folder, as `securedfl train` or a peer leaves it.")
    ],
) -> None:
    """Write report.html into a run folder, from that folder's files alone.

    **Example**

    - `securedfl report runs/digits-9-20250101-120000`
    """
    from securedfl.reporting.report import write_report

    typer.echo(write_report(folder))


@contextmanager
def report_of(run: Observer) -> Iterator[None]:
    """Write the report of the run that the observer is told of, however it ends: a stopped run is usable, too."""
    try:
        yield
    except BaseException:  # Ctrl-C too
        with suppress(Exception):  # the first error is the one to tell
            _write(run)
        raise
    _write(run)


def _write(run: Observer) -> None:
    # late: figures take a second to load
    from securedfl.reporting.report import write_report

    if run.folder is not None:
        write_report(run.folder)
