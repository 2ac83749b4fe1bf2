"""Drawings of designs: the paper's circle of peers, one small picture per partition; or all pairs in one square."""

from __future__ import annotations

import math

import numpy as np

from securedfl.designs.design import Design, Group
from securedfl.svg import Colour, image_of, ticks

CIRCLE_UP_TO, MOST_CIRCLES = 60, 12
"""Peers up to which circles are readable, and how many circles are; beyond, all pairs are one square."""

MATRIX_UP_TO = 400
"""Peers up to which pairs are drawn: a pixel for each is 300 kB then, and two megabytes for 1,000 peers."""

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44", "#66ccee", "#ee8866", "#777777")
"""Distinguishable also for colour-blind people (Tol)."""
_SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
_COLOURS_MOST = 250
_CELL, _COLUMNS = 200, 3


def design_svg(design: Design) -> str:
    """Return a picture of the whole design as a self-contained SVG that scales with the page; empty if it is too large.

    Few peers: each partition is a circle of peers whose groups are coloured polygons. More peers or partitions: one
    square in which the colour of row a, column b is the partition in which the peers a and b meet. Text is mid-grey, to
    be read on light and dark pages; peers and partitions count from 0, as everywhere.
    """
    if in_circles(design):
        return _circles(design)
    return _matrix(design) if design.n <= MATRIX_UP_TO else ""


def in_circles(design: Design) -> bool:
    """Tell whether a design is drawn as circles."""
    return design.n <= CIRCLE_UP_TO and design.gap <= MOST_CIRCLES


def design_caption(design: Design) -> str:
    """Say how to read the picture of a design."""
    if in_circles(design):
        return "One circle of peers per partition; a polygon joins the peers of a group."
    if design.n > MATRIX_UP_TO:
        return f"{design.n} peers are too many for a drawing; design.json has every group."
    return (
        f"The colour of a square says in which of the {design.gap} partitions the peers of its row and column meet; "
        "where it is white, they never do."
    )


def _circles(design: Design) -> str:
    columns = 2 if design.gap in (2, 4) else min(_COLUMNS, design.gap)
    rows = -(-design.gap // columns)
    parts = []
    for i in range(design.gap):
        x, y = i % columns * _CELL, i // columns * (_CELL + 20)
        parts.append(f'<g transform="translate({x},{y})">{_partition(design, i)}</g>')
    return _wrap(columns * _CELL, rows * (_CELL + 20), parts, design)


def _partition(design: Design, i: int) -> str:
    n, middle, radius = design.n, _CELL / 2, _CELL / 2 - 24
    spacing = 2 * math.pi * radius / n
    dot = max(2.5, min(12, spacing * 0.42))
    angles = [2 * math.pi * p / n - math.pi / 2 for p in range(n)]
    places = [(middle + radius * math.cos(a), middle + 24 + radius * math.sin(a)) for a in angles]
    parts = [
        _text(middle, 18, f"partition {i}"),
        f'<circle cx="{middle}" cy="{middle + 24}" r="{radius}" fill="none" stroke="#777" stroke-opacity=".3"/>',
    ]
    dots = []
    for number, group in enumerate(design.partition(i)):
        colour = _COLOURS[number % len(_COLOURS)]
        if len(group) > 1:
            parts.append(_polygon(group, places, colour, light=n > 24))
        for p in group:
            x, y = places[p]
            dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{dot:.1f}" fill="{colour}"/>')
            if dot >= 8:
                size = 13 if dot > 9 else 11
                dots.append(_text(x, y + size * 0.36, str(p), size=size, look='font-weight="600" fill="#fff"'))
            elif p % 5 == 0:
                # outside of the circle
                outer = (radius + 13) / radius
                at = middle + (x - middle) * outer, middle + 28 + (y - middle - 24) * outer
                dots.append(_text(*at, str(p), size=11))
    return "".join(parts + dots)


def _polygon(group: Group, places: list[tuple[float, float]], colour: str, *, light: bool) -> str:
    points = " ".join(f"{places[p][0]:.1f},{places[p][1]:.1f}" for p in group)
    opacity, width = (".10", "1.2") if light else (".18", "2")
    style = f'fill="{colour}" fill-opacity="{opacity}" stroke="{colour}" stroke-width="{width}"'
    return f'<polygon points="{points}" {style}/>'


def _matrix(design: Design) -> str:
    """Draw who meets whom when as one pixel per pair, so that hundreds of peers stay a small file."""
    met = np.full((design.n, design.n), -1, dtype=np.int32)
    for i, row in enumerate(design.labels):
        together = row[:, None] == row[None, :]
        met[together] = i
    np.fill_diagonal(met, -1)
    # colours of the scale, then white for those who never meet, then grey for the peer itself
    shades = [_shade(i, min(design.gap, _COLOURS_MOST)) for i in range(min(design.gap, _COLOURS_MOST))]
    pixels = np.where(met >= 0, met * len(shades) // design.gap, len(shades)).astype(np.uint8)
    np.fill_diagonal(pixels, len(shades) + 1)
    side, left, top = 500, 44, 34
    parts = [
        image_of(pixels, left, top, side, palette=[*shades, (255, 255, 255), (153, 153, 153)]),
        f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="#777" stroke-opacity=".4"/>',
    ]
    for peer in ticks(design.n, 12):
        at = (peer + 0.5) * side / design.n
        parts += [_text(left + at, top - 8, str(peer)), _text(left - 8, top + at + 6, str(peer), anchor="end")]
    band, y = side / design.gap, top + side + 16
    for i in range(design.gap):
        colour = "#{:02x}{:02x}{:02x}".format(*_shade(i, design.gap))
        parts.append(f'<rect x="{left + i * band:.2f}" y="{y}" width="{band + 0.3:.2f}" height="16" fill="{colour}"/>')
    parts.append(_text(left, y + 36, "partition 0", anchor="start"))
    parts.append(_text(left + side, y + 36, str(design.gap - 1), anchor="end"))
    return _wrap(left + side + 6, y + 46, parts, design)


def _shade(partition: int, gap: int) -> Colour:
    """Return a colour of a scale from dark blue to yellow that is even for colour-blind people too (after viridis)."""
    at = (len(_SCALE) - 1) * partition / max(gap - 1, 1)
    low = min(int(at), len(_SCALE) - 2)
    red, green, blue = (round(a + (b - a) * (at - low)) for a, b in zip(_SCALE[low], _SCALE[low + 1], strict=True))
    return red, green, blue


def _text(x: float, y: float, words: str, *, size: int = 16, anchor: str = "middle", look: str = 'fill="#777"') -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} font-family="system-ui,sans-serif" {look}>{words}</text>'


def _wrap(width: int, height: int, parts: list[str], design: Design) -> str:
    sizes = " and ".join(map(str, design.sizes))
    title = f"Design of {design.n} peers: {design.gap} partitions into groups of {sizes}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%" '
        f'style="max-width:{width * 1.6:.0f}px" role="img"><title>{title}</title>{"".join(parts)}</svg>'
    )
