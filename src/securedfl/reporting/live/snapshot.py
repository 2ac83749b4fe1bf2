"""What a live page shows: a value that follows from what the files of a run say, and from the time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from securedfl.federation.methods import label, ordered
from securedfl.federation.run_folder.live import Live
from securedfl.federation.run_folder.metrics import PeerRow, Row, pool
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.reporting.sections.privacy import Badge, badges_by_method

SILENT = 6.0
"""Seconds without a word after which a process is taken for lost; it speaks every second, but machines are busy."""

Kind = Literal["simulation", "trial", "peer"]

ENDED = ("done", "stopped", "failed")


@dataclass(frozen=True, kw_only=True)
class Content:
    """What the files of a run say.

    Attributes
    ----------
    name, kind
        Of the folder: a simulation, all real peers of `securedfl up`, or one real peer.
    peers, rounds
        As the settings say.
    members
        Of a simulation that draws some of the peers for each round: how many; else 0.
    rows
        Of a simulation, or of a run that has ended.
    peer_rows, lives
        Of real peers, by name; a simulation is alive under the name "".
    certificates
        By method; that of the only private one has no name.
    meetings
        Of a simulation: the groups that meet in the round at hand, of all partitions in use.
    """

    name: str
    kind: Kind
    peers: int = 0
    rounds: int = 0
    members: int = 0
    rows: tuple[Row, ...] = ()
    peer_rows: Mapping[str, Sequence[PeerRow]] = field(default_factory=dict)
    lives: Mapping[str, Live] = field(default_factory=dict)
    certificates: Mapping[str, RunCertificate] = field(default_factory=dict)
    meetings: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class PeerNow:
    """One peer: what it does, or that it is lost, and since when nothing was heard from it."""

    name: str
    phase: str
    round: int
    here: bool
    bytes_in: int = 0
    bytes_out: int = 0
    silent: float | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that a live page shows.

    Attributes
    ----------
    state
        ``starting``, what is being done, ``silent`` if nothing is heard any more, or how it ended.
    me
        Of a real peer's own folder: its name.
    method, trained
        Of a simulation: what trains now, and how many peers have in this round.
    peers
        One after the other.
    members
        How many of them a round draws; 0 if all take part.
    links
        Pairs of peers that are linked, each with whom the link goes through; None in a simulation.
    meetings
        Of a simulation: the groups of this round.
    curves
        Accuracy by round, by the labels of methods.
    accuracy, epsilon
        The last ones known.
    sent
        Bytes sent, by all real peers or by one simulated peer.
    certificates
        What is certified, by method: badges, and the sentence.
    """

    name: str
    kind: Kind
    state: str
    round: int
    rounds: int
    me: str = ""
    method: str = ""
    trained: int = 0
    peers: tuple[PeerNow, ...] = ()
    members: int = 0
    links: Mapping[tuple[str, str], str] | None = None
    meetings: tuple[tuple[int, ...], ...] = ()
    rows: tuple[Row, ...] = ()
    curves: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    accuracy: float | None = None
    epsilon: float | None = None
    sent: int = 0
    certificates: Mapping[str, tuple[tuple[Badge, ...], str]] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in (*ENDED, "ended")

    @property
    def lost(self) -> tuple[str, ...]:
        """Who is lost."""
        return tuple(peer.name for peer in self.peers if not peer.here)

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """Pairs of peers that are there and have no link."""
        if self.links is None:
            return ()
        here = [peer.name for peer in self.peers if peer.here]
        known = {frozenset(pair) for pair in self.links}
        ends = [(one, other) for at, one in enumerate(here) for other in here[at + 1 :]]
        return tuple(pair for pair in ends if frozenset(pair) not in known and self._heard(pair))

    def _heard(self, pair: tuple[str, str]) -> bool:
        """Tell whether one of two peers says whom it is linked to: a lone peer knows its own links only."""
        return self.kind == "trial" or self.me in pair


def snapshot(content: Content, now: float) -> Snapshot:
    """Return what is to be shown at a time."""
    by_round = {name: {row.round: row for row in rows} for name, rows in content.peer_rows.items()}
    rows = content.rows or tuple(pool(by_round))
    curves = {label(name): _curve(rows, name) for name in ordered(row.method for row in rows)}
    lives = content.lives.values()
    method = next((label(live.method) for live in lives if live.method), next(reversed(curves), ""))
    spenders = {row.method for row in rows if row.epsilon is not None}
    # a number that is not finite has no place in a table of metrics
    epsilons = [math.inf if row.epsilon is None else row.epsilon for row in rows if row.method in spenders]
    return Snapshot(
        name=content.name,
        kind=content.kind,
        state=_state(content.lives.values(), now, begun=bool(rows)),
        round=max((live.round for live in lives), default=max((row.round for row in rows), default=0)),
        rounds=max((live.rounds for live in lives), default=0) or content.rounds,
        me=next(iter(content.lives), "") if content.kind == "peer" else "",
        method=method if content.kind == "simulation" else "",
        trained=max((live.trained for live in lives), default=0),
        peers=_peers(content, now),
        members=content.members,
        links=None if content.kind == "simulation" else _links(content, now),
        meetings=content.meetings,
        rows=rows,
        curves={name: curve for name, curve in curves.items() if curve},
        accuracy=curves[method][-1][1] if curves.get(method) else None,
        epsilon=epsilons[-1] if epsilons else None,
        sent=sum(live.bytes_out for live in lives),
        certificates=badges_by_method(content.certificates),
    )


def _curve(rows: Sequence[Row], method: str) -> tuple[tuple[int, float], ...]:
    """Return a method's accuracy by round: on the common test set, where there is one."""
    found: dict[int, float] = {}
    for row in rows:
        if row.method == method:
            value = row.accuracy if row.common_accuracy is None else row.common_accuracy
            if math.isfinite(value):
                found[row.round] = value
    return tuple(sorted(found.items()))


def _silence(live: Live, now: float) -> float | None:
    """Return for how many seconds nothing was heard from a process that has not ended; None if it speaks."""
    quiet = now - live.time
    return None if live.phase in ENDED or quiet < SILENT else quiet


def _state(lives: Iterable[Live], now: float, *, begun: bool) -> str:
    """Say what most processes do; folders of older versions have nobody who speaks."""
    lives = list(lives)
    if not lives:
        return "ended" if begun else "starting"
    speaking = [live for live in lives if _silence(live, now) is None]
    if not speaking:
        return "silent"
    phases = [live.phase for live in speaking if live.phase not in ENDED]
    if phases:
        return max(dict.fromkeys(phases), key=phases.count)
    return next((end for end in ("done", "stopped") if end in [live.phase for live in speaking]), "failed")


def _peers(content: Content, now: float) -> tuple[PeerNow, ...]:
    if content.kind == "simulation":
        live = content.lives.get("")
        busy = live is not None and live.phase not in ENDED
        trained = live.trained if live is not None and busy else content.peers
        return tuple(
            PeerNow(str(peer), "trained" if peer < trained else "waiting", 0, here=True)
            for peer in range(content.peers)
        )
    heard = {name: _heard(live, now) for name, live in content.lives.items()}
    if content.kind == "trial":
        return tuple(heard[name] for name in sorted(heard, key=_by_number))
    live = next(iter(content.lives.values()), None)
    if live is None:
        return ()
    # nobody knows how the others are who does not speak any more
    alone = heard[live.name].silent is not None
    others = {
        other: PeerNow(other, "unknown" if alone else _seen(live, other), live.round, alone or other in live.present)
        for other in live.roster
    }
    return tuple((others | heard).values())


def _seen(live: Live, other: str) -> str:
    """Say what a peer knows of another."""
    if other not in live.present:
        return "lost"
    return "trained" if other in live.ready else "training"


def _heard(live: Live, now: float) -> PeerNow:
    quiet = _silence(live, now)
    phase = live.phase if quiet is None else "lost"
    here = quiet is None and live.phase != "failed"
    return PeerNow(live.name, phase, live.round, here, live.bytes_in, live.bytes_out, quiet)


def _links(content: Content, now: float) -> dict[tuple[str, str], str]:
    """Return who is linked to whom, as those say who still speak."""
    return {
        (name, other): through
        for name, live in content.lives.items()
        if _silence(live, now) is None and live.phase not in ENDED
        for other, through in live.links.items()
    }


def _by_number(name: str) -> tuple[str, int]:
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdecimal() else (name, -1)
