"""Tables on a terminal: how they look, and the result of an experiment as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from securedfl.experiments.results import Shown

LOOK: dict[str, Any] = {"title_justify": "left", "box": None, "padding": (0, 2, 0, 0), "pad_edge": False}
"""Options of rich's tables: a title on the left, no lines."""

COLOURS = {
    "holds": "green",
    "holds for these models": "green",
    "not decided": "yellow",
    "differs for these models": "red",
    "differs": "red",
    "not measured": "dim",
}


def show(title: str, result: Shown, console: Console) -> None:
    """Print the table, the paper's values beside ours, and the claims."""
    table = result.compact or result.table
    # The scales are told below the table.
    shown = len(table.columns) - (table.columns[-1] == "Scale")
    printed = Table(title=f"{title}, {table.caption}" if table.caption else title, **LOOK)
    for number, column in enumerate(table.columns[:shown]):
        printed.add_column(column, justify="right" if number else "left")
    for row in table.rows:
        printed.add_row(*row[:shown])
    console.print(printed)
    claims = Table(title="Claims", show_header=False, **LOOK)
    claims.add_column(no_wrap=True)
    claims.add_column()
    for finding in result.findings:
        numbers = f": {finding.numbers}" if finding.numbers else ""
        claims.add_row(f"[{COLOURS[finding.verdict]}]{finding.verdict}[/]", Text(finding.claim + numbers))
    console.print(claims)
    for text in (*(f"Scaled: {text}" for text in result.scaled), *result.notes):
        console.print(text, markup=False, soft_wrap=True)
