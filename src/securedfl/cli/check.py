"""``securedfl check``: whether a site is ready to join."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from securedfl.errors import needing


def check(
    config: Annotated[Path, typer.Argument(metavar="PEER.toml", help="This site's settings.")],
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the others, who run the same check.")] = 0.0,
    open_within: Annotated[
        float,
        typer.Option(min=0, help="Seconds that the app may take to be made and to open the data; 0 leaves it out."),
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check settings, design, privacy, keys, clocks, the app and its data, and whether others and relays are reached.

    The app is imported, made with this site's data and asked to score its model, in a process of its own. Nothing is
    trained. The others must run `securedfl peer` or `securedfl check --wait` meanwhile. The exit code is 7 if sites
    merely cannot be reached, 8 if this site's own folder is damaged, of another run or cannot be written, and 4 if
    something else does not fit. A relay that is not reached, and that nobody needs now,
    is a warning.

    **Example**

    - `securedfl check hospital-a.toml --wait 60`
    """
    with needing("real peers"):
        from securedfl.federation.checking.check import check as look
        from securedfl.federation.checking.check import failure

    findings = look(config, wait=wait, within=open_within)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        table = Table("", "What", "Finding")
        for finding in findings:
            fine = "[yellow]warning[/]" if finding.lost else "[green]ok[/]"
            table.add_row(fine if finding.ok else "[red]no[/]", finding.subject, escape(finding.text))
        Console(highlight=False, emoji=False).print(table)
    if (error := failure(findings)) is not None:
        raise error
