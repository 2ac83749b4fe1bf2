"""Drawings of designs: the paper's circle of peers, one small picture per partition."""

from __future__ import annotations

import math

from securedfl.designs.design import Design, Group

CIRCLE_UP_TO = 60
"""Peers up to which circles are readable; beyond, the groups are written out."""

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44", "#66ccee", "#ee8866", "#777777")
"""Distinguishable also for colour-blind people (Tol)."""
_CELL, _COLUMNS = 200, 3
_TEXT = 'font-family="system-ui,sans-serif" fill="#777"'


def design_svg(design: Design, max_partitions: int | None = None) -> str:
    """Return a picture of the design as a self-contained SVG that scales with the page.

    Up to `CIRCLE_UP_TO` peers, each partition is a circle of peers whose groups are coloured polygons; beyond, a
    table. Text is mid-grey, to be read on light and dark pages; peers and partitions count from 0, as everywhere.

    Parameters
    ----------
    design
        What to draw.
    max_partitions
        Draw only so many and mention the rest; by default all circles, or eight lines of the table.
    """
    circles = design.n <= CIRCLE_UP_TO
    limit = max_partitions if max_partitions is not None else (design.gap if circles else 8)
    shown = max(1, min(limit, design.gap))
    return _circles(design, shown) if circles else _table(design, shown)


def _circles(design: Design, shown: int) -> str:
    columns = 2 if shown in (2, 4) else min(_COLUMNS, shown)
    rows = -(-shown // columns)
    parts = []
    for i in range(shown):
        x, y = i % columns * _CELL, i // columns * (_CELL + 20)
        parts.append(f'<g transform="translate({x},{y})">{_partition(design, i)}</g>')
    return _wrap(columns * _CELL, rows * (_CELL + 20), parts, design, shown)


def _partition(design: Design, i: int) -> str:
    n, middle, radius = design.n, _CELL / 2, _CELL / 2 - 24
    spacing = 2 * math.pi * radius / n
    dot = max(2.5, min(12, spacing * 0.42))
    places = []
    for p in range(n):
        angle = 2 * math.pi * p / n - math.pi / 2
        places.append((middle + radius * math.cos(angle), middle + 24 + radius * math.sin(angle)))
    parts = [f'<text x="{middle}" y="18" font-size="16" text-anchor="middle" {_TEXT}>partition {i}</text>']
    parts.append(
        f'<circle cx="{middle}" cy="{middle + 24}" r="{radius}" fill="none" stroke="#777" stroke-opacity=".3"/>'
    )
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
                dots.append(
                    f'<text x="{x:.1f}" y="{y + size * 0.36:.1f}" font-size="{size}" font-weight="600" '
                    f'font-family="system-ui,sans-serif" text-anchor="middle" fill="#fff">{p}</text>'
                )
            elif p % 5 == 0:
                dots.append(_outer_number(p, x - middle, y - middle - 24, middle))
    return "".join(parts + dots)


def _outer_number(p: int, x: float, y: float, middle: float) -> str:
    length = math.hypot(x, y)
    outer = (length + 13) / length
    return (
        f'<text x="{middle + x * outer:.1f}" y="{middle + 28 + y * outer:.1f}" font-size="11" '
        f'text-anchor="middle" {_TEXT}>{p}</text>'
    )


def _polygon(group: Group, places: list[tuple[float, float]], colour: str, *, light: bool) -> str:
    points = " ".join(f"{places[p][0]:.1f},{places[p][1]:.1f}" for p in group)
    opacity, width = (".10", "1.2") if light else (".18", "2")
    style = f'fill="{colour}" fill-opacity="{opacity}" stroke="{colour}" stroke-width="{width}"'
    return f'<polygon points="{points}" {style}/>'


def _table(design: Design, shown: int) -> str:
    lines: list[tuple[str, str]] = []
    for i in range(shown):
        text = ""
        head = str(i)
        for group in design.partition(i):
            word = "-".join(str(p) for p in group)
            if len(text) + len(word) > 62:
                lines.append((head, text))
                head, text = "", ""
            text = f"{text} {word}".strip()
        lines.append((head, text))
    parts = []
    y = 0
    for head, text in lines:
        y += 28 if head else 20
        if head:
            parts.append(
                f'<text x="34" y="{y}" font-size="15" font-weight="700" text-anchor="end" {_TEXT}>{head}</text>'
            )
        parts.append(f'<text x="46" y="{y}" font-size="14" {_TEXT}>{text}</text>')
    return _wrap(_CELL * _COLUMNS, y + 10, parts, design, shown)


def _wrap(width: int, height: int, parts: list[str], design: Design, shown: int) -> str:
    if shown < design.gap:
        height += 26
        rest = f"and {design.gap - shown} more partitions"
        parts = [
            *parts,
            f'<text x="{width / 2}" y="{height - 8}" font-size="15" text-anchor="middle" {_TEXT}>{rest}</text>',
        ]
    sizes = " and ".join(map(str, design.sizes))
    title = f"Design of {design.n} peers: {design.gap} partitions into groups of {sizes}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%" '
        f'style="max-width:{width * 1.6:.0f}px" role="img"><title>{title}</title>{"".join(parts)}</svg>'
    )
