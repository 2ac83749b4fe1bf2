"""What the peers hold and train: facts, and a picture of samples and classes per peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from securedfl.federation.run_folder.reader import Run
from securedfl.federation.run_folder.summary import Data
from securedfl.reporting.sections.drawing import ACCENT, LINE, SOFT, WIDTH, box, picture, text
from securedfl.svg import ticks

MOST_COLUMNS = 170
"""Peers beyond which several share a column, with their mean."""

MOST_TITLES = 600
"""Cells beyond which they have no words of their own."""

_BARS, _LEFT = 70.0, 34.0


def facts(run: Run) -> dict[str, str]:
    """Return where the data comes from, how it was dealt, and what is trained on it."""
    told = {"Data": run.dataset} if run.dataset else {}
    if run.samples.train:
        whose = f"at {run.site}" if run.site else f"at {run.peers} peers"
        told["Samples"] = f"{run.samples.train:,} for training and {run.samples.test:,} for testing, {whose}"
    if run.data is not None and run.data.common:
        told["Common test set"] = f"{run.data.common:,} samples that no peer holds"
    if run.settings.get("entry") or not run.settings.get("model"):
        # an app or a loop of the user's own has its own data and model
        size = _size(run.data)
        return told | ({"Parameters": size} if size else {})
    size = _size(run.data, " parameters")
    told |= {"Dealing": _dealing(run)} if _dealing(run) else {}
    return told | {"Model": f"{run.settings['model']}{': ' * bool(size)}{size}"}


def _size(data: Data | None, what: str = "") -> str:
    if data is None or data.averaged is None:
        return ""
    home = f", and {data.at_home:,} more that stay with each peer" if data.at_home else ""
    return f"{data.averaged:,}{what} that are averaged{home}"


def _dealing(run: Run) -> str:
    """Say how samples came to peers."""
    dealing = run.settings.get("dealing")
    words = {
        "even": "even: every peer has the same mixture of classes",
        "natural": "natural: whole users go to peers",
        "dirichlet": f"Dirichlet with alpha {run.settings.get('alpha', 0.5):g}: peers have unequal mixtures of classes",
    }
    return words.get(str(dealing), str(dealing or ""))


def held_svg(run: Run) -> str:
    """Return samples per peer as bars, and below them how many labels of each class, as a map; empty if unknown."""
    data = run.data
    if data is None or not data.peers:
        return ""
    peers = data.peers
    if len(peers) == 1:
        return _labels_svg(peers[0].classes or ())
    tile = -(-len(peers) // MOST_COLUMNS)
    columns = [range(at, min(at + tile, len(peers))) for at in range(0, len(peers), tile)]
    heads = [_named(column) for column in columns]
    totals = [sum(peers[p].train for p in column) / len(column) for column in columns]
    parts = _bars(totals, [f"{head}: {total:,.0f} training samples" for head, total in zip(heads, totals, strict=True)])
    y = _BARS + 4
    classes = max((len(held.classes or ()) for held in peers), default=0)
    if classes:
        cells, y = _map(data, columns, heads, classes, y)
        parts += cells
    parts += _axis("peer", {number: number // tile for number in ticks(len(peers), 12)}, len(columns), y + 13, y + 27)
    each = ", ".join(f"{held.train:,}" for held in peers[:20]) + (" and more" if len(peers) > 20 else "")
    return picture(y + 33, parts, f"Training samples of each peer: {each}." + (" Below, by class." if classes else ""))


def _labels_svg(classes: Sequence[int]) -> str:
    """Return the training labels of one peer by class, as bars; empty if they are not known."""
    if not classes:
        return ""
    parts = _bars(classes, [f"class {label}: {count:,}" for label, count in enumerate(classes)])
    parts += _axis("class", {label: label for label in ticks(len(classes), 16)}, len(classes), _BARS + 14, _BARS + 29)
    return picture(_BARS + 35, parts, f"Training labels by class: {', '.join(map(str, classes))}.")


def _step(columns: int) -> tuple[float, float]:
    """Return how wide a column is, and the gap after it."""
    step = (WIDTH - _LEFT) / columns
    return step, 1.0 if step > 5 else 0.0


def _bars(values: Sequence[float], titles: Sequence[str]) -> list[str]:
    """Return bars side by side, and the value of the highest."""
    (step, gap), most = _step(len(values)), max(values) or 1
    parts = [text(_LEFT - 5, 12, f"{most:,.0f}", anchor="end", colour=SOFT)]
    for at, (value, title) in enumerate(zip(values, titles, strict=True)):
        height = (_BARS - 4) * value / most
        parts.append(box(_LEFT + at * step, _BARS - height, step - gap, height, ACCENT, title=title))
    return parts


def _axis(name: str, numbers: Mapping[int, int], columns: int, y: float, below: float) -> list[str]:
    """Return numbers, each under its column, and below them what they are numbers of."""
    step, gap = _step(columns)
    places = {number: _LEFT + (at + 0.5) * step - gap / 2 for number, at in numbers.items()}
    written = [text(x, y, number, anchor="middle", colour=SOFT) for number, x in places.items()]
    return [*written, text(_LEFT + (WIDTH - _LEFT) / 2, below, name, anchor="middle")]


def _map(data: Data, columns: list[range], heads: list[str], classes: int, top: float) -> tuple[list[str], float]:
    """Return a row of cells for each class, darker for more labels, and where they end."""
    step = (WIDTH - _LEFT) / len(columns)
    side = max(2.0, min(16.0, 200 / classes))
    gap = 1.0 if min(step, side) > 5 else 0.0
    counts = [
        [sum((data.peers[p].classes or (0,) * classes)[label] for p in column) / len(column) for column in columns]
        for label in range(classes)
    ]
    most = max(max(row) for row in counts) or 1.0
    titled = classes * len(columns) <= MOST_TITLES
    parts = [box(_LEFT, top, WIDTH - _LEFT, classes * side, LINE, opacity=0.35)]
    for label, row in enumerate(counts):
        for at, count in enumerate(row):
            words = f"{heads[at]}, class {label}: {count:,.0f}" if titled else ""
            shade = 0.12 + 0.88 * count / most if count else 0.0
            if shade:
                cell = box(
                    _LEFT + at * step, top + label * side, step - gap, side - gap, ACCENT, opacity=shade, title=words
                )
                parts.append(cell)
    for label in ticks(classes, max(2, int(classes * side // 13))):
        parts.append(text(_LEFT - 5, top + (label + 0.5) * side + 3.5, label, anchor="end", colour=SOFT))
    parts.append(
        f'<text transform="translate(9 {top + classes * side / 2:.1f}) rotate(-90)" text-anchor="middle">class</text>'
    )
    return parts, top + classes * side


def caption(run: Run) -> str:
    """Say what the picture shows."""
    peers = () if run.data is None else run.data.peers
    if len(peers) == 1:
        return f"Training labels of {run.site or 'the peer'} by class. Sites do not tell each other theirs."
    counted, many = any(held.classes for held in peers), len(peers) > MOST_COLUMNS
    told = "Bars: training samples per peer."
    if counted:
        told += " Squares: how many of them are of each class; darker is more, empty is none."
    return told + (" Columns are means over neighbours." if many else "")


def _named(column: range) -> str:
    return f"peer {column[0]}" if len(column) == 1 else f"peers {column[0]} to {column[-1]}"
