"""What the core is told, and what it says must be done."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from securedfl.network.core.entries import Ask, Entry, Try
from securedfl.network.core.messages import Failure, Gossip, Record, Result


class Received(Struct, frozen=True):
    """A message arrived on the link of a peer."""

    peer: int
    message: Gossip


class Link(Struct, frozen=True):
    """Messages can be sent to a peer, directly or through a relay; or they cannot any more."""

    peer: int
    up: bool = True


class Tick(Struct, frozen=True):
    """Time has passed; due at the latest when the last `Wake` said."""


class Update(Struct, frozen=True):
    """The update of a round is stored here for good; or, if it is not whole, damaged, and it can never be averaged."""

    round: int
    whole: bool = True


class Shared(Struct, frozen=True):
    """All that this peer shares in an attempt went out, and all that it needs before opening came in."""

    attempt: Try


class Command(Struct, frozen=True):
    """The operator of this site asks for a change; None takes it back."""

    ask: Ask | None


class Leaving(Struct, frozen=True):
    """The process will stop now."""


Event = Received | Link | Tick | Update | Shared | Result | Failure | Command | Leaving
"""A `Result` is stored here, computed or fetched; a `Failure` happened here."""


class Write(Struct, frozen=True):
    """Append a record and sync it before the next action; if that fails, stop, and make a new core from disk."""

    record: Record


class Send(Struct, frozen=True):
    """Send a message to peers, if their links are up."""

    peers: tuple[int, ...]
    message: Gossip


class Train(Struct, frozen=True):
    """Make this peer's update of a round from the model applied last, store it, then tell the `Update`.

    ``again``: shares of the stored update may be out already, so it must be the same one; if it is gone, tell that.
    """

    round: int
    again: bool = False


class Share(Struct, frozen=True):
    """Run an attempt up to its commit step, then tell `Shared`; protocols in one part run whole, and tell the `Result`.

    It is the running attempt until `Stop`. If it makes no progress, tell the `Failure`.
    """

    attempt: Try
    members: tuple[int, ...]


class Open(Struct, frozen=True):
    """All members of the running attempt have shared: add up, without the lost, store the `Result` and tell it.

    It may be said again, with more that were lost.
    """

    lost: tuple[int, ...] = ()


class Stop(Struct, frozen=True):
    """Give up the running attempt and forget what it shared."""


class Fetch(Struct, frozen=True):
    """Get the bytes of a result from one of its holders, check the digest, store them, then tell the `Result`."""

    result: Result
    holders: tuple[int, ...]


class Apply(Struct, frozen=True):
    """The stored result is the model now. Said again after a restart."""

    result: Result


class Wake(Struct, frozen=True):
    """Send a `Tick` at this time; it stands until the next one."""

    at: float


class Tell(Struct, frozen=True):
    """Something for logs and people, said once until it changes.

    ``decided``: an entry; ``waiting``: for whom an attempt waits, and why; ``lost`` and ``back``: a peer; ``apart``:
    two peers that do not hear each other; ``refused``: what a peer sent and why it does not count; ``unable``: why what
    the operator asked for is not possible; ``stranger``: a peer whose state folder is not the admitted one; ``odd``:
    members with another result than most; ``asked``: what another operator asks for, where some must agree; ``late``:
    a peer that was not ready in time; ``left out``: this peer, which the rules keep out for now. The shell tells
    ``unfit``: a peer that cannot be linked because of keys, versions or rosters.
    """

    what: Literal[
        "decided",
        "waiting",
        "lost",
        "back",
        "apart",
        "refused",
        "unable",
        "stranger",
        "odd",
        "asked",
        "late",
        "left out",
        "unfit",
    ]
    peers: tuple[int, ...] = ()
    detail: str = ""
    entry: Entry | None = None


Action = Write | Send | Train | Share | Open | Stop | Fetch | Apply | Wake | Tell
