"""What the core is told, and what it says must be done."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from securedfl.network.core.entries import Ask, Entry
from securedfl.network.core.messages import Gossip, Record


class OfPeer(Struct, frozen=True):
    """Something about a peer."""

    peer: int


class OfRound(Struct, frozen=True):
    """Something about a round."""

    round: int


class OfAttempt(OfRound, frozen=True):
    """Something about an attempt at the average of a round."""

    attempt: int


class Received(OfPeer, frozen=True):
    """A message arrived on the link of a peer."""

    message: Gossip


class LinkUp(OfPeer, frozen=True):
    """Messages can be sent to a peer, directly or through a relay."""


class LinkDown(OfPeer, frozen=True):
    """They cannot any more."""


class Tick(Struct, frozen=True):
    """Time has passed; due at the latest when the last `Wake` said."""


class Ready(OfRound, frozen=True):
    """The update of a round is stored here and will not change any more."""


class Forgot(OfRound, frozen=True):
    """The stored update of a round is damaged, so it can never be averaged again."""


class Shared(OfAttempt, frozen=True):
    """All that this peer shares in an attempt went out, and all that it needs before opening came in."""


class Holds(OfAttempt, frozen=True):
    """The result of an attempt is stored here, computed or fetched."""

    digest: bytes


class Failed(OfAttempt, frozen=True):
    """An attempt makes no progress here; ``lost`` as in the `Finish` that failed, ``peers`` who was waited for."""

    lost: tuple[int, ...] = ()
    peers: tuple[int, ...] = ()


class Command(Struct, frozen=True):
    """The operator of this site asks for a change; None takes it back."""

    ask: Ask | None


class Leaving(Struct, frozen=True):
    """The process will stop now."""


Event = Received | LinkUp | LinkDown | Tick | Ready | Forgot | Shared | Holds | Failed | Command | Leaving


class Write(Struct, frozen=True):
    """Append a record and sync it before the next action; if that fails, stop, and restore a new core from disk."""

    record: Record


class Send(Struct, frozen=True):
    """Send a message to peers, if their links are up."""

    peers: tuple[int, ...]
    message: Gossip


class Train(OfRound, frozen=True):
    """Make this peer's update of a round from the model applied last, store it, then tell `Ready`.

    ``again``: shares of the stored update may be out already, so it must be the same one; if it is gone, tell `Forgot`.
    """

    again: bool = False


class Share(OfAttempt, frozen=True):
    """Run an attempt up to its commit step, then tell `Shared`; protocols in one part run whole, and tell `Holds`."""

    members: tuple[int, ...]


class Open(OfAttempt, frozen=True):
    """All members have shared: add up, store the result, then tell `Holds`."""


class Finish(OfAttempt, frozen=True):
    """Add up again, without the lost; then tell `Holds`."""

    lost: tuple[int, ...]


class Stop(OfAttempt, frozen=True):
    """Give up an attempt and forget what it shared."""


class Fetch(OfAttempt, frozen=True):
    """Get the bytes of a result from one of its holders, check the digest, store them, then tell `Holds`."""

    digest: bytes
    holders: tuple[int, ...]


class Apply(OfRound, frozen=True):
    """The stored result with this digest is the model now. Said again after a restart."""

    digest: bytes


class Wake(Struct, frozen=True):
    """Send a `Tick` at this time; it stands until the next one."""

    at: float


class Tell(Struct, frozen=True):
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
