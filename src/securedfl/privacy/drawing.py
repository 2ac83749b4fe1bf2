"""Pictures of an audit: who can learn about whom, as SVG and as characters."""

from __future__ import annotations

from html import escape

import numpy as np

from securedfl.designs.coalition_search import EXPOSED, PARTIAL, TOTAL, Levels
from securedfl.svg import ticks

_COLOURS = {TOTAL: "#d7e8dc", PARTIAL: "#f2c46d", EXPOSED: "#c8423b"}
_NAMES = {TOTAL: "only the total", PARTIAL: "functions of several peers", EXPOSED: "its parameters"}
_MOST_LABELS = 15
_MOST_CELLS = 150
_SIDE = 300
"""Units of the map's width: with its labels it is as wide as a phone, so that they can be read there."""


def exposure_svg(levels: Levels, title: str = "Who can learn about whom", *, collusion: int = 1) -> str:
    """Return a heat map: row i, column u is the most that coalitions with member i learn about peer u.

    Cells of one row and one level are drawn as one rectangle, so that even hundreds of peers stay a small file; more
    than 150 peers are drawn in tiles that show the worst of what they cover.
    """
    n = len(levels)
    tile = -(-n // _MOST_CELLS)
    shown = _tiled(levels, tile)
    cell = _SIDE / len(shown)
    left, top = 52, 66
    gap = 1 if cell > 8 else 0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + _SIDE + 8} {top + _SIDE + 76}" '
        'font-family="system-ui, sans-serif" font-size="12" shape-rendering="crispEdges" '
        f'role="img" aria-label="{escape(title)}">',
        f'<text x="{left + _SIDE}" y="18" text-anchor="end" font-size="13" font-weight="600" fill="currentColor">'
        f"{escape(title)}</text>",
        f'<text x="{left + _SIDE / 2:g}" y="42" text-anchor="middle" fill="currentColor">about peer</text>',
        f'<text transform="translate(18 {top + _SIDE / 2:g}) rotate(-90)" text-anchor="middle" fill="currentColor">'
        f"{'curious peer' if collusion == 1 else f'member of a coalition of {collusion}'}</text>",
    ]
    for i, row in enumerate(shown):
        cuts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)] if not gap else range(len(row) + 1)
        for first, end in zip(cuts, list(cuts)[1:], strict=False):
            myself = i == first == end - 1 and tile == 1
            colour = "#9aa3ab" if myself else _COLOURS[int(row[first])]
            about = f"{_span(i, tile, n)} about {_span(first, tile, n)}: {_NAMES[int(row[first])]}"
            parts.append(
                f'<rect x="{left + first * cell:.2f}" y="{top + i * cell:.2f}" '
                f'width="{(end - first) * cell - gap:.2f}" height="{cell - gap:.2f}" fill="{colour}">'
                + (f"<title>{about}</title>" if gap else "")
                + "</rect>"
            )
    for i in ticks(len(shown), _MOST_LABELS):
        middle = (i + 0.5) * cell
        parts.append(
            f'<text x="{left + middle:.1f}" y="{top - 8}" text-anchor="middle" font-size="11" fill="currentColor">'
            f"{i * tile}</text>"
            f'<text x="{left - 8}" y="{top + middle + 3.5:.1f}" text-anchor="end" font-size="11" fill="currentColor">'
            f"{i * tile}</text>"
        )
    for line, (level, name) in enumerate(_NAMES.items()):
        y = top + _SIDE + 14 + 20 * line
        parts.append(f'<rect x="{left}" y="{y}" width="14" height="14" fill="{_COLOURS[level]}"/>')
        parts.append(f'<text x="{left + 20}" y="{y + 11.5}" fill="currentColor">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def exposure_text(levels: Levels, most: int = 60) -> str:
    """Return the heat map as characters: ``.`` only the total, ``o`` partial, ``X`` exposed; empty if too large."""
    n = len(levels)
    if n > most:
        return ""
    signs = np.array([".", "o", "X"])[levels].astype(object)
    np.fill_diagonal(signs, "-")
    width = len(str(n - 1))
    head = " " * (width + 1) + " ".join(f"{u:>{width}}" for u in range(n))
    rows = [f"{i:>{width}} " + " ".join(f"{sign:>{width}}" for sign in row) for i, row in enumerate(signs)]
    return "\n".join([head, *rows])


def _tiled(levels: Levels, tile: int) -> Levels:
    if tile == 1:
        return levels
    padding = -len(levels) % tile
    padded = np.pad(levels, (0, padding))
    side = len(padded) // tile
    tiled: Levels = padded.reshape(side, tile, side, tile).max(axis=(1, 3))
    return tiled


def _span(index: int, tile: int, n: int) -> str:
    first, last = index * tile, min(n, (index + 1) * tile) - 1
    return f"peer {first}" if tile == 1 else f"peers {first} to {last}"
