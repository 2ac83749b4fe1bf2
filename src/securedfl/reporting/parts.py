"""Small pieces of HTML; everything that comes from a run is escaped here and nowhere else."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template

from securedfl.reporting.figures import GRID, INK
from securedfl.reporting.methods import palette

# The same hues, lighter, for a dark background; in the order of `palette`.
_ON_DARK = ("#a3adbb", "#f2b84b", "#e78bb8", "#6cb0f5", "#43c59a", "#d2a679", "#f58a5b", "#7cc8f0", "#a995ea")


def text(value: object) -> str:
    """Escape a value for use in HTML text and attributes."""
    return html.escape(str(value), quote=True)


def page(
    *,
    title: str,
    eyebrow: str,
    result: str,
    banners: str,
    tiles: str,
    contents: Mapping[str, str],
    sections: Sequence[str],
    source: str,
) -> str:
    """Return a whole page. Title, result and source are words; all else is HTML already.

    Parameters
    ----------
    title, eyebrow, result
        The heading, what stands above it, and the sentence below it.
    banners, tiles
        Warnings, and the key figures.
    contents, sections
        Headings by anchor, and what they lead to.
    source
        What the page was written from.
    """
    files = resources.files("securedfl.reporting")
    template = Template((files / "report.html").read_text(encoding="utf-8"))
    style = Template((files / "report.css").read_text(encoding="utf-8"))
    return template.substitute(
        title=text(title),
        eyebrow=eyebrow,
        result=text(result),
        banners=banners,
        tiles=tiles,
        contents="".join(f'<a href="#{anchor}">{heading}</a>' for anchor, heading in contents.items()),
        sections="\n".join(sections),
        source=source,
        style=style.substitute(dark=dark_colours()),
    )


def theme_colours() -> dict[str, str]:
    """Return what replaces each colour of a figure inside a page, so that a dark theme can restate it."""
    named = {colour: f"var(--{_variable(colour)}, {colour})" for colour in palette()}
    return named | {INK: "currentColor", GRID: f"var(--line, {GRID})"}


def dark_colours() -> str:
    """Return the style rules that restate the methods' colours on a dark background."""
    return "\n".join(
        f"    --{_variable(colour)}: {dark};" for colour, dark in zip(palette(), _ON_DARK, strict=True)
    )


def section(anchor: str, heading: str, *blocks: str, lead: str = "") -> str:
    """Return a titled section; the lead says in plain words what it shows."""
    opening = f'<p class="lead">{text(lead)}</p>' if lead else ""
    return f'<section id="{anchor}">\n<h2>{text(heading)}</h2>\n{opening}{"".join(blocks)}\n</section>'


def grid(*blocks: str) -> str:
    """Return cards side by side where there is room."""
    kept = [block for block in blocks if block]
    return f'<div class="grid">{"".join(kept)}</div>' if kept else ""


def chart(title: str, caption: str, svg: str) -> str:
    """Return an inline figure with its title and what to see in it."""
    return (
        f'<figure class="card chart"><figcaption><h3>{text(title)}</h3><p>{text(caption)}</p></figcaption>'
        f"{svg}</figure>"
    )


def picture(title: str, caption: str, svg: str, description: str) -> str:
    """Return an SVG file as an image: no script in it runs, and its ids and styles stay its own."""
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return (
        f'<figure class="card picture"><figcaption><h3>{text(title)}</h3><p>{text(caption)}</p></figcaption>'
        f'<img src="data:image/svg+xml;base64,{data}" alt="{text(description)}"></figure>'
    )


def facts(pairs: Mapping[str, object]) -> str:
    """Return names and values as a list."""
    rows = "".join(f"<dt>{text(key)}</dt><dd>{text(value)}</dd>" for key, value in pairs.items())
    return f'<dl class="facts">{rows}</dl>'


def tiles(entries: Sequence[tuple[str, str]]) -> str:
    """Return (value, what it is) pairs as large figures."""
    cells = "".join(
        f'<div class="tile"><dt>{text(about)}</dt><dd>{text(value)}</dd></div>' for value, about in entries
    )
    return f'<dl class="tiles" aria-label="Key figures">{cells}</dl>' if entries else ""


def banner(heading: str, message: str, *, command: str = "", bad: bool = False) -> str:
    """Return a message that nobody overlooks, and the command that helps."""
    kind = "banner bad" if bad else "banner"
    then = f" <code>{text(command)}</code>" if command else ""
    return (
        f'<div class="{kind}" role="alert"><strong>{text(heading)}</strong><p>{text(message)}{then}</p></div>'
    )


def badge(words: str, kind: str = "") -> str:
    """Return a short label; kind is "", "warn" or "bad"."""
    return f'<span class="badge {kind}">{text(words)}</span>'


def folded(heading: str, content: str) -> str:
    """Return content that the reader opens."""
    return f"<details><summary>{text(heading)}</summary>{content}</details>"


def swatch(colour: str) -> str:
    """Return a dot in a method's colour."""
    return f'<span class="swatch" style="background: {theme_colours()[colour]}"></span>'


def _variable(colour: str) -> str:
    return f"c{colour.removeprefix('#')}"
