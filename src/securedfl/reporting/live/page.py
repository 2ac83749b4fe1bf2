"""A snapshot as HTML: the whole page, and the part of it that events replace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files

from securedfl.federation.methods import METHODS, label
from securedfl.reporting.live.snapshot import ENDED, PeerNow, Snapshot
from securedfl.reporting.methods import looks, themed
from securedfl.reporting.page import rendered
from securedfl.reporting.sections.drawing import ACCENT, BAD, LINE, SOFT, WIDTH, picture, text
from securedfl.reporting.units import bounded, data_size, percent
from securedfl.svg import ticks

LINES_UP_TO = 16
"""Peers up to which every link is drawn; beyond, only links that are missing."""

NAMES_UP_TO = 40

DOTS_UP_TO = 300
"""Peers up to which they are drawn; the page is sent again with every change."""

_KINDS = {"done": "", "ended": "", "silent": "bad", "failed": "bad", "stopped": "warn"}
"""How the badge of a state looks; all others are work."""


def page(snapshot: Snapshot) -> str:
    """Return the whole page."""
    return rendered("live.html", shown=_shown(snapshot), title=f"{snapshot.name}: {snapshot.state}")


def part(snapshot: Snapshot) -> str:
    """Return what changes of the page."""
    return rendered("live-part.html", shown=_shown(snapshot))


def static(name: str) -> bytes:
    """Return a file that the page asks for."""
    if name == "page.css":
        return rendered("page.css").encode()
    return (files("securedfl.reporting") / "templates" / name).read_bytes()


def _shown(now: Snapshot) -> dict[str, object]:
    kinds = {
        "simulation": "a simulation",
        "trial": "processes on this machine",
        "peer": f"seen by {now.me or now.name}",
    }
    return {
        "now": now,
        "badge": (_state(now), _KINDS.get(now.state, "busy")),
        "about": kinds[now.kind],
        "tiles": _tiles(now),
        "accuracy": curves_svg(now.curves, now.rounds),
        "wheel": wheel_svg(now),
        "wheel_caption": _caption(now),
        "peers": [(peer, data_size(peer.bytes_in), data_size(peer.bytes_out)) for peer in now.peers],
        "real": now.kind != "simulation",
        "last": [
            (row, label(row.method), percent(row.accuracy), max(len(row.tried or ()) - 1, 0))
            for row in now.rows[-8:][::-1]
        ],
    }


def _state(now: Snapshot) -> str:
    if now.state in (*ENDED, "silent", "ended", "starting"):
        return {"silent": "nothing is heard any more"}.get(now.state, now.state)
    doing = f"{now.method}: {now.state}" if now.method else now.state
    return f"{doing}, round {now.round} of {now.rounds}"


def _tiles(now: Snapshot) -> dict[str, str]:
    told = {"round": f"{now.round} of {now.rounds}"}
    if now.accuracy is not None:
        told[f"test accuracy{f', {now.method}' * bool(now.method)}"] = percent(now.accuracy)
    if now.epsilon is not None:
        told["epsilon spent"] = bounded(now.epsilon)
    here = sum(peer.here for peer in now.peers)
    if now.kind == "simulation":
        whose = "members" if now.members else "peers"
        told[f"{whose} that have trained in this round"] = f"{now.trained} of {now.members or len(now.peers)}"
        told |= {"peers": f"{len(now.peers):,}"} if now.members else {}
    else:
        told["peers that are there"] = f"{here} of {len(now.peers)}"
    told["sent by each peer so far" if now.kind == "simulation" else "sent so far"] = data_size(now.sent)
    return told


def _caption(now: Snapshot) -> str:
    if now.links is None:
        return "Filled: has trained in this round. Lines: groups that meet in this round's average."
    lines = "Lines: links" if len(now.peers) <= LINES_UP_TO else "Red lines: links that are missing"
    return f"{lines}; a dashed one goes through a third. Red: lost."


def wheel_svg(now: Snapshot) -> str:
    """Return all peers on a circle, with the links between them."""
    n = len(now.peers)
    # who of the peers was drawn is not told while a round runs
    if not n or n > DOTS_UP_TO or now.members:
        return ""
    middle, radius = WIDTH / 2, 112.0 if n <= NAMES_UP_TO else 140.0
    places = {}
    for at, peer in enumerate(now.peers):
        angle = 2 * math.pi * at / n - math.pi / 2
        places[peer.name] = (middle + radius * math.cos(angle), 158 + radius * math.sin(angle))
    parts = [*_lines(now, places), *_dots(now.peers, places, middle)]
    lost = f"; lost: {', '.join(now.lost)}" if now.lost else ""
    return picture(316, parts, f"{n} peers on a circle{lost}.")


def _lines(now: Snapshot, places: Mapping[str, tuple[float, float]]) -> list[str]:
    if now.links is None:
        rims = [(*group, group[0]) for group in now.meetings if len(group) > 1]
        return [
            _path([places[str(peer)] for peer in rim], ACCENT, 'stroke-opacity=".45"')
            for rim in rims
            if all(str(peer) in places for peer in rim)
        ]
    drawn = []
    if len(now.peers) <= LINES_UP_TO:
        seen = {frozenset(pair): through for pair, through in now.links.items()}
        for pair, through in seen.items():
            if pair <= places.keys() and not pair & set(now.lost):
                dashes = 'stroke-dasharray="4 3"' if through else ""
                drawn.append(_path([places[name] for name in sorted(pair)], ACCENT, f'stroke-opacity=".35" {dashes}'))
    drawn += [_path([places[one], places[other]], BAD, "") for one, other in now.missing]
    return drawn


def _path(points: Sequence[tuple[float, float]], colour: str, more: str, *, width: float = 1.2) -> str:
    line = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="{width}" {more}/>'


def _dots(peers: Sequence[PeerNow], places: Mapping[str, tuple[float, float]], middle: float) -> list[str]:
    dot = max(2.5, min(9.0, 300 / len(peers)))
    parts = []
    for peer in peers:
        x, y = places[peer.name]
        colour = ACCENT if peer.here else BAD
        hollow = peer.phase in ("waiting", "starting", "unknown") and peer.here
        look = f'fill="var(--card)" stroke="{colour}" stroke-width="2"' if hollow else f'fill="{colour}"'
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{dot:.1f}" {look}></circle>')
        if len(peers) <= NAMES_UP_TO:
            dx, dy = (x - middle) / 112, (y - 158) / 112
            anchor = "middle" if abs(dx) < 0.3 else "start" if dx > 0 else "end"
            parts.append(text(x + 15 * dx, y + 18 * dy + 3.5, peer.name[:14], anchor=anchor, colour=SOFT))
    return parts


def curves_svg(curves: Mapping[str, Sequence[tuple[int, float]]], rounds: int) -> str:
    """Return accuracy by round, one line for each method."""
    if not curves:
        return ""
    left, bottom, top = 34.0, 170.0, 8.0 + 15 * len(curves)
    last = max(rounds, 1, *(curve[-1][0] for curve in curves.values()))
    values = [value for curve in curves.values() for _, value in curve]
    step = next(size for size in (1, 2, 5, 10, 20) if 100 * (max(values) - min(values)) <= 4 * size or size == 20)
    lowest = int(100 * min(values)) // step
    levels = [
        level * step / 100 for level in range(lowest, max(-(-int(1e4 * max(values)) // (100 * step)), lowest + 1) + 1)
    ]
    floor, ceiling = levels[0], levels[-1]

    def at(round: int, value: float) -> tuple[float, float]:
        x = left + (WIDTH - left - 8) * round / last
        return x, bottom - (bottom - top) * (value - floor) / (ceiling - floor)

    parts = []
    for value in levels:
        _, y = at(0, value)
        parts.append(f'<path d="M{left} {y:.1f} H{WIDTH - 8}" stroke="{LINE}" stroke-width=".8"/>')
        parts.append(text(left - 5, y + 3.5, f"{100 * value:.4g}", anchor="end", colour=SOFT))
    for round in ticks(last + 1, 9):
        parts.append(text(at(round, floor)[0], bottom + 14, round, anchor="middle", colour=SOFT))
    names = {method.label: name for name, method in METHODS.items()}
    styles = looks(names.get(name, name) for name in curves)
    for row, (name, curve) in enumerate(curves.items()):
        colour = themed(styles[names.get(name, name)].colour)
        points = [at(*point) for point in curve]
        parts.append(_path(points, colour, 'stroke-linejoin="round"', width=2.2))
        x, y = points[-1]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"></circle>')
        parts.append(f'<circle cx="{left + 5}" cy="{6 + 15 * row}" r="4" fill="{colour}"></circle>')
        parts.append(text(left + 14, 9.5 + 15 * row, f"{name} {percent(curve[-1][1])}"))
    parts.append(text(left + (WIDTH - left) / 2, bottom + 29, "round", anchor="middle"))
    ends = "; ".join(f"{name} is at {percent(curve[-1][1])}" for name, curve in curves.items())
    return picture(bottom + 35, parts, f"Line chart of test accuracy per round: {ends}.")
