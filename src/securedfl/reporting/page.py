"""Pages of HTML: what they are made of, and the templates that turn it into one file for any browser."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from securedfl.errors import needing
from securedfl.reporting.methods import palette


@dataclass(frozen=True, kw_only=True)
class Page:
    """What stands around the sections of a page.

    Attributes
    ----------
    title, result, tiles
        The heading, the sentence below it, and key figures by what they are.
    contents
        The sections' headings by anchor.
    source
        What the page was written from.
    """

    title: str
    result: str
    tiles: Mapping[str, str]
    contents: Mapping[str, str]
    source: str


@dataclass(frozen=True)
class Table:
    """A table whose first column holds the heads of its rows.

    Attributes
    ----------
    colours, best
        Of a dot before each row's head, if there are any; and the numbers of the rows whose first value is the best.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    colours: Sequence[str] = ()
    best: Collection[int] = ()


def rendered(template: str, *, package: str = "securedfl.reporting", **values: object) -> str:
    """Return what a template makes of some values; without jinja2 that is an error that says how to get it.

    Parameters
    ----------
    template, package
        A template, and the package whose folder ``templates`` holds it.
    values
        What it shows; one that extends ``page.html`` takes a `Page` as ``page``.
    """
    with needing("reports"):
        import jinja2
    places = dict.fromkeys((package, "securedfl.reporting"))
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(place) for place in places]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["image"] = _image
    return environment.get_template(template).render(palette=palette(), **values)


def _image(svg: str) -> str:
    """Return an SVG file as the address of an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8")).decode("ascii")
