"""Write figures: as files (SVG, PNG, the same bytes every time) or as SVG text inside a page."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securedfl.reporting.figures import GRID, INK, style
from securedfl.reporting.methods import palette, themed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_METADATA: dict[str, Any] = {"Date": None, "Creator": None, "Format": None, "Type": None}


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as the path's suffix says, on white, without dates or versions."""
    metadata = _NO_METADATA if path.suffix == ".svg" else {"Software": None}
    with _drawing():
        figure.savefig(path, dpi=200, metadata=metadata, facecolor="white")


def inline(figure: Figure, name: str, description: str) -> str:
    """Return a figure as an ``<svg>`` element for an HTML page, whose theme decides its colours.

    Parameters
    ----------
    figure, description
        What to draw, and what a screen reader says instead.
    name
        Put before every id, so that several figures in one page do not take each other's clip paths.

    Notes
    -----
    Width and height are left to the page; text remains text; the rule for line joins that matplotlib puts in
    front applies to whole pages and is removed (the page's own style sheet has it).
    """
    buffer = io.StringIO()
    with _drawing():
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    head, _, content = buffer.getvalue().partition("<svg")[2].rstrip().partition(">")
    content = re.sub(r"<style\b.*?</style>|<!--.*?-->|<metadata>.*?</metadata>", "", content, flags=re.DOTALL)
    content = re.sub(r"\n\s*", "\n", content)
    content = re.sub(r'\bid="', f'id="{name}-', content)
    content = content.replace('xlink:href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    colours = {colour: themed(colour) for colour in palette()}
    for old, new in {**colours, INK: "currentColor", GRID: f"var(--line, {GRID})"}.items():
        content = re.sub(rf"(?<=: ){re.escape(old)}\b", new, content)
    (box,) = re.findall(r'viewBox="[^"]+"', head)
    return f'<svg {box} role="img" aria-label="{html.escape(description, quote=True)}">{content}'


@contextmanager
def _drawing() -> Iterator[None]:
    """Draw in the project's style; a letter that the layout font lacks is no matter, the viewer has its own."""
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield
