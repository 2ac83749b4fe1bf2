"""What a peer tells while it runs: to people, or as lines of JSON to another process."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from securedfl.federation.run_folder.metrics import PeerRow, to_values
from securedfl.storage import look_at_types


class _Told(msgspec.Struct, frozen=True, tag_field="event"):
    """An event; its tag is the value of ``event`` in a line of JSON."""


class Certified(_Told, frozen=True, tag="certificate"):
    """What the certificate promises, in a sentence."""

    sentence: str


class Waiting(_Told, frozen=True, tag="waiting"):
    """Who is waited for; nobody any more if it is empty."""

    missing: tuple[str, ...]


class Lost(_Told, frozen=True, tag="lost"):
    """From whom nothing is heard any more; a round may go on without them."""

    peers: tuple[str, ...]


class Back(_Told, frozen=True, tag="back"):
    """Who is heard again."""

    peers: tuple[str, ...]


class Unfit(_Told, frozen=True, tag="unfit"):
    """Who cannot take part with this peer because of keys, versions, rosters or settings, and why."""

    peer: str
    reason: str


class Ended(_Told, frozen=True, tag="ended"):
    """Why the run ended before its last round."""

    reason: str


class Failed(_Told, frozen=True, tag="failed"):
    """What failed at this site and is told here only: with differential privacy nobody else may notice."""

    reason: str


class Resumed(_Told, frozen=True, tag="resumed"):
    """After which round this peer goes on."""

    round: int


class AllDone(_Told, frozen=True, tag="all done"):
    """That the last round, of this number, was done before this peer was started."""

    round: int


class Staying(_Told, frozen=True, tag="staying"):
    """For whom this peer stays at the end: they lack the last model or the log's end; and who asked for a decision."""

    peers: tuple[str, ...]
    seconds: float
    asking: tuple[str, ...] = ()


class Ignored(_Told, frozen=True, tag="ignored"):
    """What this site's files say and the run does not heed, and what to do."""

    reason: str


class Phase(_Told, frozen=True, tag="phase"):
    """What this peer begins to do in a round."""

    phase: str = "starting"
    round: int = 0


class PeerStatus(Phase, frozen=True, tag="status"):
    """Where this peer is, how many bytes it has moved, and the last round of the run, 0 if that is not known yet."""

    bytes_in: int = 0
    bytes_out: int = 0
    rounds: int = 0


Tagged = (
    Certified
    | Waiting
    | Lost
    | Back
    | Unfit
    | Ended
    | Failed
    | Resumed
    | AllDone
    | Staying
    | Ignored
    | Phase
    | PeerStatus
)

Event = Tagged | PeerRow
"""A row of metrics is the event that a round is done."""

Tell = Callable[[Event], None]


def to_json(event: Event) -> str:
    """Return an event as a line of JSON."""
    if isinstance(event, PeerRow):
        return json.dumps({"event": "round", **to_values(event)})
    return json.dumps(msgspec.to_builtins(event))


def from_json(line: str) -> Event | None:
    """Read a line of JSON; None if it is no event."""
    try:
        found = json.loads(line)
        kind = PeerRow if found["event"] == "round" else Tagged
        event: Event = msgspec.convert(found, kind)
    except (ValueError, KeyError, TypeError):
        return None
    return event


look_at_types(Tagged, PeerRow)
