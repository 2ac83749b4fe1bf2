"""What a peer tells while it runs: to people, or as lines of JSON to another process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from securedfl.federation.run_folder.metrics import PeerRow, to_values


@dataclass(frozen=True)
class Certified:
    """What the certificate promises, in a sentence."""

    sentence: str


@dataclass(frozen=True)
class Waiting:
    """Who is waited for; nobody any more if it is empty."""

    missing: tuple[str, ...]


@dataclass(frozen=True)
class Resumed:
    """After which round this peer goes on."""

    round: int


@dataclass(frozen=True)
class Ended:
    """Why the run ended before its last round."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """What failed at this site and is told here only: with differential privacy nobody else may notice."""

    reason: str


@dataclass(frozen=True)
class Phase:
    """What this peer begins to do in a round."""

    phase: str
    round: int


@dataclass(frozen=True)
class Status:
    """Where this peer is, and how many bytes it has moved."""

    phase: str = "starting"
    round: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


Event = Certified | Waiting | Resumed | Ended | Failed | Phase | Status | PeerRow
"""A row of metrics is the event that a round is done."""

Tell = Callable[[Event], None]

KINDS: Mapping[str, type[Any]] = {
    "certificate": Certified,
    "waiting": Waiting,
    "resumed": Resumed,
    "ended": Ended,
    "failed": Failed,
    "phase": Phase,
    "status": Status,
    "round": PeerRow,
}
"""The value of ``event`` in a line of JSON."""

_NAMES = {kind: name for name, kind in KINDS.items()}


def to_json(event: Event) -> str:
    """Return an event as a line of JSON."""
    return json.dumps({"event": _NAMES[type(event)], **to_values(event)})


def from_json(line: str) -> Event | None:
    """Read a line of JSON; None if it is no event."""
    try:
        found = json.loads(line)
        event: Event = msgspec.convert(found, KINDS[found["event"]])
    except (ValueError, KeyError, TypeError):
        return None
    return event
