"""``securedfl report``: write a run's HTML report again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run folder, as `securedfl train` leaves it.")
    ],
) -> None:
    """Write report.html into a run folder, from that folder's files alone.

    **Example**

    - `securedfl report runs/digits-9-20250101-120000`
    """
    from securedfl.reporting.report import write_report

    typer.echo(write_report(folder))
