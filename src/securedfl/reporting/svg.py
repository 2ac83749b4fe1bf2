"""Write figures: as files (SVG, PNG, the same bytes every time) or as SVG text inside a page."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securedfl.reporting.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_METADATA: dict[str, Any] = {"Date": None, "Creator": None, "Format": None, "Type": None}


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as the path's suffix says, on white, without dates or versions."""
    metadata = _NO_METADATA if path.suffix == ".svg" else {"Software": None}
    with _drawing():
        figure.savefig(path, dpi=200, metadata=metadata, facecolor="white")


def inline_svg(figure: Figure, *, prefix: str, description: str, colours: Mapping[str, str] | None = None) -> str:
    """Return a figure as an ``<svg>`` element for an HTML page.

    Parameters
    ----------
    figure, description
        What to draw, and what a screen reader says instead.
    prefix
        Put before every id, so that several figures in one page do not take each other's clip paths.
    colours
        Colours to replace, e.g. the ink by ``currentColor``, so that the page's theme decides.

    Notes
    -----
    Width and height are left to the page; text remains text; the rule for line joins that matplotlib puts in
    front applies to whole pages and is removed (the page's own style sheet has it).
    """
    buffer = io.StringIO()
    with _drawing():
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    body = buffer.getvalue()
    body = body[body.index("<svg") :].strip()
    view = re.search(r'viewBox="([^"]+)"', body)
    content = body[body.index(">") + 1 :]
    content = re.sub(r"<style\b.*?</style>|<!--.*?-->|<metadata>.*?</metadata>", "", content, flags=re.DOTALL)
    content = re.sub(r"\n\s*", "\n", content)
    content = re.sub(r'\bid="', f'id="{prefix}-', content)
    content = content.replace('xlink:href="#', f'href="#{prefix}-').replace("url(#", f"url(#{prefix}-")
    for old, new in (colours or {}).items():
        content = re.sub(rf"(?<=: ){re.escape(old)}\b", new, content)
    alternative = html.escape(description, quote=True)
    box = view.group(1) if view else "0 0 1 1"
    return f'<svg viewBox="{box}" role="img" aria-label="{alternative}">{content}'


@contextmanager
def _drawing() -> Iterator[None]:
    """Draw in the project's style; a letter that the layout font lacks is no matter, the viewer has its own."""
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield
