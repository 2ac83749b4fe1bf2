"""``securedfl data``: which data sets there are, and what they hold."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from securedfl.cli.options import Json, a_file, write
from securedfl.errors import ConfigError
from securedfl.federation.settings import read_names
from securedfl.learning.data import datasets
from securedfl.learning.data.hub import DATA_DIR
from securedfl.learning.data.tables.arrays import Columns
from securedfl.reporting.units import data_size

if TYPE_CHECKING:
    from securedfl.learning.data.description import Description, Place

data = typer.Typer(help="Show the data sets and what they hold.", no_args_is_help=True, rich_markup_mode="markdown")

DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help=f"Folder that holds NAME/*.parquet; else ${DATA_DIR}, else the hub.",
        file_okay=False,
    ),
]

MOST_CLASSES = 12
"""Classes whose counts are printed; all are in ``--json``."""


@data.command(name="list")
def list_(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the data sets and where each would be read from. Nothing is read or fetched.

    **Examples**

    - `securedfl data list`
    - `securedfl data list --data-dir ~/data --json`
    """
    from securedfl.learning.data.description import Place

    found: list[tuple[str, datasets.Source, Place | ConfigError]] = []
    for name in datasets.names():
        source = datasets.source(name)
        try:
            found.append((name, source, Place.of(source, data_dir)))
        except ConfigError as error:
            found.append((name, source, error))
    if as_json:
        rows = [
            {
                "name": name,
                "about": source.about,
                "model": source.defaults.get("model"),
                **({"missing": str(place)} if isinstance(place, ConfigError) else asdict(place)),
            }
            for name, source, place in found
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    console = Console(highlight=False, markup=False, emoji=False)
    for name, source, place in found:
        console.print(f"{name:<12} {source.about}", soft_wrap=True)
        text = f"not found: {place}" if isinstance(place, ConfigError) else _availability(place)
        console.print(f"{'':<12} {text}", soft_wrap=True)
    console.print("\nMore about one: securedfl data info NAME")


@data.command()
def info(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="digits, femnist, shakespeare or cifar10; or a folder of yours.")
    ],
    data_dir: DataDir = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a folder: the column of the class.")] = None,
    user: Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a folder: whom a row is from.")] = None,
    features: Annotated[str, typer.Option(metavar="COLUMN,...", help="Of a folder: the columns to learn from.")] = "",
    as_json: Json = False,
    svg: Annotated[Path | None, a_file("Draw samples of a few users.", dir_okay=False)] = None,
) -> None:
    """Show users, samples, split, classes and a picture of a data set, beside what the paper used.

    **Examples**

    - `securedfl data info digits`
    - `securedfl data info femnist --data-dir ~/data --svg femnist.svg`
    - `securedfl data info shakespeare --json`
    - `securedfl data info ./wine --label cultivar`
    """
    from securedfl.learning.data.description import describe
    from securedfl.learning.data.pictures import contact_sheet, terminal

    columns = Columns(label=label, user=user, features=read_names(features))
    source = datasets.source(name, columns)
    messages = Console(stderr=True, highlight=False, markup=False, emoji=False)
    waiting = messages.status(f"Reading {name} ...") if messages.is_terminal else nullcontext()
    with waiting as status:
        dataset = datasets.load(name, data_dir, None if status is None else status.update, columns)
    description = describe(dataset, source, data_dir)
    if svg is not None:
        write(svg, [contact_sheet(dataset)])
    if as_json:
        typer.echo(description.to_json())
        return
    console = Console(highlight=False, markup=False, emoji=False)
    _show(description, console)
    console.print()
    unicode = console.encoding.lower().startswith("utf")
    for line in terminal(dataset, colour=console.color_system is not None, unicode=unicode):
        console.print(line, soft_wrap=True)
    if svg is not None:
        console.print(f"\nwritten     {svg}", soft_wrap=True)


@data.command()
def coding(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Folders or tables of yours, or codings (.json) of sites.")
    ],
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of the class.")] = None,
    user: Annotated[str | None, typer.Option(metavar="COLUMN", help="Whom a row is from; no feature.")] = None,
    features: Annotated[str, typer.Option(metavar="COLUMN,...", help="The columns to learn from.")] = "",
    out: Annotated[Path | None, a_file("Write it there, as JSON; else it is printed.", dir_okay=False)] = None,
) -> None:
    """Make a coding: what classes and features mean, so that the sites of a federation mean the same.

    Each site makes one of its table and sends it to the others; together they give the coding that all sites read
    their data with. It tells names of columns and classes, texts, and how many numbers a column has, with their mean
    and deviation, which of one or two rows are the numbers themselves: look at it before you send it.

    **Examples**

    - `securedfl data coding patients.csv --label outcome --out site-a.json`
    - `securedfl data coding site-a.json site-b.json site-c.json --out coding.json`
    """
    from securedfl.learning.data.coding import Coding
    from securedfl.learning.data.folder import read_folder

    found = []
    for source in sources:
        if source.endswith(".json"):
            found.append(Coding.load(source))
            continue
        read = read_folder(source, label=label, user=user, features=read_names(features)).coding
        if read is None:
            raise ConfigError(f"{source} holds arrays, whose classes are numbered already; they need no coding")
        found.append(read)
    made = Coding.together(found)
    if out is None:
        typer.echo(made.to_json(), nl=False)
        return
    write(out, [made.to_json().decode()])
    typer.echo(made.told())
    typer.echo(f"\nWritten to {out}. All sites read with it: securedfl.read_folder(path, coding={str(out)!r})")


def _show(about: Description, console: Console) -> None:
    lines = [("data set", f"{about.name}: {about.about}"), ("read from", _origin(about.place))]
    if about.place.cache_bytes is not None:
        lines.append(("decoded", f"{about.place.cache} ({data_size(about.place.cache_bytes)})"))
    lines.append(("sample", f"{' x '.join(map(str, about.shape))}, {about.dtype}"))
    if about.samples_per_user is not None:
        least, low, middle, high, most = (f"{count:,.0f}" for count in astuple(about.samples_per_user))
        text = f"{least} to {most} samples; half of the users have {low} to {high}, median {middle}"
        lines.append(("per user", f"{most} samples each" if least == most else text))
    if about.alphabet is not None:
        shown = json.dumps(about.alphabet, ensure_ascii=False)
        lines.append(("alphabet", f"{about.classes} characters: {shown}"))
    lines.append(("classes", _classes(about)))
    for number, feature in enumerate(about.coding.features if about.coding else ()):
        lines.append(("" if number else "features", feature.told(scaled=True)))
    for title, text in lines:
        console.print(f"{title:<11} {text}", soft_wrap=True)
    console.print()
    console.print(_amounts(about))


def _classes(about: Description) -> str:
    """Return the classes and how often they occur; of many only the most frequent."""
    numbers: Iterable[str] = about.names or map(str, itertools.count())
    names = map(repr, about.alphabet) if about.alphabet else numbers
    counted, start = list(zip(names, about.labels, strict=False)), ": "
    if len(counted) > MOST_CLASSES:
        counted, start = sorted(counted, key=lambda pair: -pair[1])[:MOST_CLASSES], ", most often "
    return f"{about.classes}{start}" + ", ".join(f"{name} ({count:,})" for name, count in counted)


def _amounts(about: Description) -> Table:
    """Return users and samples beside the paper's."""
    paper = about.paper
    columns = ["", "here", "paper"] if paper else ["", "here"]
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    here = {**about.samples, "users": about.users or None}
    titles = [("users", "users"), ("training", "train"), ("testing", "test")]
    for title, key in [*titles, ("common test", "common")] if "common" in here else titles:
        count = "unknown" if here[key] is None else f"{here[key]:,}"
        table.add_row(title, count, *([f"{getattr(paper, key):,}"] if paper else []))
    return table


def _origin(place: Place) -> str:
    if place.address is None:
        return "a library on this machine"
    if not place.files:
        return f"{place.address} on the hub"
    first, *others = place.files
    more = f" and {len(others)} more" if others else ""
    return f"{first}{more} ({data_size(place.bytes or 0)})"


def _availability(place: Place) -> str:
    decoded = f"; decoded: {data_size(place.cache_bytes)}" if place.cache_bytes is not None else ""
    return f"from {_origin(place)}{decoded}"
