"""Real peers round by round: who was in an average, who was lost, what was tried again, and how much was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.reader import Run
from securedfl.reporting.page import Table
from securedfl.reporting.sections.drawing import ACCENT, BAD, LINE, SOFT, WARN, WIDTH, box, picture, text
from securedfl.reporting.units import data_size, duration
from securedfl.svg import ticks

MOST_ROUNDS, MOST_PEERS = 400, 200
"""That are drawn; of more rounds the last ones are."""

MOST_NAMED = 40
"""Peers that a cell of the table names."""


@dataclass(frozen=True)
class Moment:
    """One round: its row of metrics, and who was in its average, who began an attempt and was lost, who was absent."""

    row: Row
    members: tuple[int, ...]
    lost: tuple[int, ...]
    absent: tuple[int, ...]

    @property
    def void(self) -> bool:
        """Whether nobody was in an average."""
        return not self.members

    @property
    def retries(self) -> int:
        """Attempts after the first."""
        return len(self.row.tried or ()) - 1


def moments(run: Run) -> list[Moment]:
    """Return what happened in each round; nothing where the attempts were not written down."""
    rows = next((m.rounds for m in run.methods if any(row.tried for row in m.rounds)), ())
    known = {peer for row in rows for tried in row.tried or () for peer in tried.members}
    # peers of the roster that never took part are absent, too
    known |= {int(number) for number in run.roster} | set(range(0 if run.roster else run.peers))
    return [_moment(row, known) for row in rows if row.tried]


def _moment(row: Row, known: set[int]) -> Moment:
    tried = row.tried or ()
    opened = [one.members for one in tried if one.opened and not row.void]
    members = opened[-1] if opened else ()
    began = {peer for one in tried for peer in one.members}
    return Moment(row, tuple(members), tuple(sorted(began - set(members))), tuple(sorted(known - began)))


def sentence(found: Sequence[Moment]) -> str:
    """Say in short how it went."""
    retries, void = sum(moment.retries for moment in found), [m.row.round for m in found if m.void]
    missed = sorted({peer for moment in found for peer in (*moment.lost, *moment.absent)})
    told = [f"{len(found)} rounds, {retries} {'retry' if retries == 1 else 'retries'}"]
    told.append(f"void: {_spans(void)}" if void else "none void")
    told.append("everybody was in all of them" if not missed else f"{len(missed)} peers were missing at times")
    return ", ".join(told) + "."


def timeline_svg(run: Run, found: Sequence[Moment]) -> str:
    """Return peers by rounds: filled where a peer was in the average; with retries above and bytes below."""
    shown = found[-MOST_ROUNDS:]
    peers = sorted({p for m in shown for p in (*m.members, *m.lost, *m.absent)})
    if not shown or len(peers) > MOST_PEERS:
        return ""
    names = [run.peer(peer) for peer in peers]
    left = 10 + min(90.0, 5.8 * max(map(len, names)))
    step, side = (WIDTH - left) / len(shown), max(3.0, min(16.0, 260 / len(peers)))
    gap = 1.0 if min(step, side) > 4 else 0.0
    top, bars = 16.0, 34.0
    parts = []
    for at, moment in enumerate(shown):
        x = left + at * step
        for row, peer in enumerate(peers):
            state, colour, opacity = _state(moment, peer)
            words = f"round {moment.row.round}, {names[row]}: {state}" if len(shown) * len(peers) <= 2000 else ""
            y = top + row * side
            parts.append(box(x, y, step - gap, side - gap, colour, opacity=opacity, title=words))
        if moment.retries:
            mark = str(moment.retries) if step > 7 else "·"
            parts.append(text(x + step / 2, top - 4, mark, anchor="middle", colour=WARN))
    every = max(1, round(13 / side))
    for row in range(0, len(peers), every):
        parts.append(text(left - 5, top + (row + 0.5) * side + 3.5, names[row][:16], anchor="end", colour=SOFT))
    floor, most = top + len(peers) * side + bars, max(m.row.bytes_per_peer for m in shown) or 1.0
    for at, moment in enumerate(shown):
        sent = moment.row.bytes_per_peer
        height = (bars - 6) * sent / most
        words = f"round {moment.row.round}: {data_size(sent)} sent per peer"
        parts.append(box(left + at * step, floor - height, step - gap, height, ACCENT, opacity=0.55, title=words))
    parts.append(text(left - 5, floor - bars + 14, data_size(most), anchor="end", colour=SOFT))
    parts.append(text(left - 5, floor, "sent", anchor="end", colour=SOFT))
    for at in ticks(len(shown), 10):
        parts.append(text(left + (at + 0.5) * step, floor + 13, shown[at].row.round, anchor="middle", colour=SOFT))
    parts.append(text(left + (WIDTH - left) / 2, floor + 27, "round", anchor="middle"))
    return picture(floor + 33, parts, f"Who took part in which round. {sentence(found)}")


def _state(moment: Moment, peer: int) -> tuple[str, str, float]:
    """Return what a peer was in a round: in words, in a colour, and how strong that is."""
    if moment.void:
        return "no average: the round was void", BAD, 0.75
    if peer in moment.members:
        return "in the average", ACCENT, 0.9
    return ("lost during the round", WARN, 0.9) if peer in moment.lost else ("absent", LINE, 0.8)


def rounds_table(run: Run, found: Sequence[Moment]) -> Table:
    """Return the same in words."""
    rows = [
        [
            str(moment.row.round),
            "void" if moment.void else str(len(moment.members)),
            _names(run, moment.lost),
            _names(run, moment.absent),
            str(moment.retries),
            data_size(moment.row.bytes_per_peer),
            duration(moment.row.train_seconds),
            duration(moment.row.average_seconds),
        ]
        for moment in found
    ]
    heads = ["Round", "Members", "Lost", "Absent", "Retries", "Sent per peer", "Training", "Averaging"]
    return Table(heads, rows, "All rounds")


def _names(run: Run, peers: Sequence[int]) -> str:
    """Return peers by name, or of many how many they are."""
    return f"{len(peers):,} peers" if len(peers) > MOST_NAMED else ", ".join(map(run.peer, peers)) or "–"


def _spans(numbers: Sequence[int]) -> str:
    """Return whole numbers in short: 3 to 5, 9."""
    cuts = [0, *(at + 1 for at, (one, other) in enumerate(pairwise(numbers)) if other != one + 1), len(numbers)]
    spans = [numbers[first:end] for first, end in pairwise(cuts)]
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in spans)
