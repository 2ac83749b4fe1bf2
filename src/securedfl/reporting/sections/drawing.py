"""Small pictures as SVG text whose colours are the page's: no library needed, readable at the width of a phone."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

WIDTH = 340.0
"""Units of a picture's width: about the pixels of a phone, so that text is as large as the page's."""

SIZE = 10.5
"""Of text."""

ACCENT, WARN, BAD, SOFT, LINE = (f"var(--{name})" for name in ("accent", "warn", "bad", "soft", "line"))


def picture(height: float, parts: Iterable[str], description: str) -> str:
    """Return a whole picture; ``description`` is what a screen reader says instead."""
    body = "\n".join(part for part in parts if part)
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(description, quote=True)}" '
        f'font-size="{SIZE:g}" fill="currentColor">\n{body}\n</svg>'
    )


def text(x: float, y: float, words: object, *, anchor: str = "start", colour: str = "currentColor") -> str:
    """Return a line of text; what the user may have chosen is escaped."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(str(words))}</text>'


def box(x: float, y: float, width: float, height: float, colour: str, *, opacity: float = 1.0, title: str = "") -> str:
    """Return a filled rectangle; nothing if it is empty."""
    if width <= 0 or height <= 0:
        return ""
    faint = f' fill-opacity="{opacity:.3g}"' if opacity < 1 else ""
    inside = f"<title>{escape(title)}</title></rect>" if title else "</rect>"
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{colour}"{faint}>{inside}'
