"""What the core is told, and what it says must be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from securedfl.network.core.entries import Ask, Entry
from securedfl.network.core.messages import Gossip, Record


@dataclass(frozen=True, slots=True)
class Received:
    """A message arrived on the link of a peer."""

    peer: int
    message: Gossip


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Messages can be sent to a peer, directly or through a relay."""

    peer: int


@dataclass(frozen=True, slots=True)
class LinkDown:
    """They cannot any more."""

    peer: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due at the latest when the last `Wake` said."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The update of a round is stored here and will not change any more."""

    round: int


@dataclass(frozen=True, slots=True)
class Forgot:
    """The stored update of a round is damaged, so it can never be averaged again."""

    round: int


@dataclass(frozen=True, slots=True)
class Shared:
    """All that this peer shares in an attempt went out, and all that it needs before opening came in."""

    round: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Holds:
    """The result of an attempt is stored here, computed or fetched."""

    round: int
    attempt: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt makes no progress here; ``lost`` as in the `Finish` that failed, ``peers`` who was waited for."""

    round: int
    attempt: int
    lost: tuple[int, ...] = ()
    peers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """The operator of this site asks for a change; None takes it back."""

    ask: Ask | None


@dataclass(frozen=True, slots=True)
class Leaving:
    """The process will stop now."""


Event = Received | LinkUp | LinkDown | Tick | Ready | Forgot | Shared | Holds | Failed | Command | Leaving


@dataclass(frozen=True, slots=True)
class Write:
    """Append a record and sync it before the next action; if that fails, stop, and restore a new core from disk."""

    record: Record


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to peers, if their links are up."""

    peers: tuple[int, ...]
    message: Gossip


@dataclass(frozen=True, slots=True)
class Train:
    """Make this peer's update of a round from the model applied last, store it, then tell `Ready`.

    ``again``: shares of the stored update may be out already, so it must be the same one; if it is gone, tell `Forgot`.
    """

    round: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """Run an attempt up to its commit step, then tell `Shared`; protocols in one part run whole, and tell `Holds`."""

    round: int
    attempt: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """All members have shared: add up, store the result, then tell `Holds`."""

    round: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Add up again, without the lost; then tell `Holds`."""

    round: int
    attempt: int
    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Give up an attempt and forget what it shared."""

    round: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Get the bytes of a result from one of its holders, check the digest, store them, then tell `Holds`."""

    round: int
    attempt: int
    digest: bytes
    holders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """The stored result with this digest is the model now. Said again after a restart."""

    round: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Wake:
    """Send a `Tick` at this time; it stands until the next one."""

    at: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Something for logs and people, said once until it changes.

    ``decided``: an entry; ``waiting``: for whom an attempt waits, and why; ``lost`` and ``back``: a peer; ``apart``:
    two peers that do not hear each other; ``refused``: what a peer sent and why it does not count; ``unable``: why what
    the operator asked for is not possible; ``stranger``: a peer whose state folder is not the admitted one.
    """

    what: Literal["decided", "waiting", "lost", "back", "apart", "refused", "unable", "stranger"]
    peers: tuple[int, ...] = ()
    detail: str = ""
    entry: Entry | None = None


Action = Write | Send | Train | Share | Open | Finish | Stop | Fetch | Apply | Wake | Tell
