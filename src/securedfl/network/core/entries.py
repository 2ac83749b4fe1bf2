"""What all peers agree on: the entries of the log. All is bounded, because it is read from wire and disk."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import astuple

MOST_PEERS = 256
"""The largest roster."""
NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
"""What a peer may be called: it stands in files, certificates and on screens."""

Number = Annotated[int, Meta(ge=0, le=2**31)]
"""A peer's number in the roster (given once, never again to another), a round, an attempt, an index or a ballot."""
Since = Annotated[int, Meta(ge=-1, le=2**31)]
"""A number, or -1 for none."""
Numbers = Annotated[tuple[Number, ...], Meta(max_length=MOST_PEERS)]
Text = Annotated[str, Meta(max_length=500)]
Bytes = Annotated[bytes, Meta(max_length=1024)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]


class Line(Struct, frozen=True, array_like=True):
    """One line of the roster.

    Attributes
    ----------
    number, name, address
        Who it is and where; the number is never given to another peer.
    key
        The public key that its signatures are checked with.
    incarnation
        Of the state folder that votes under its name; empty until one was admitted.
    """

    number: Number
    name: Text
    address: Text
    key: Bytes
    incarnation: Text = ""


class Settings(Struct, frozen=True, array_like=True, tag=True):
    """What operators may change while it runs; also the entry that changes it.

    Attributes
    ----------
    rounds
        How many.
    train, average, absent
        Seconds: to get ready for a round; without progress within an attempt (kept by the shell); for a lost member of
        a bound round to come back, before the round is void.
    heartbeat
        Seconds between heartbeats. A peer is lost after `views.SILENCE` of them.
    """

    rounds: Number
    train: Seconds = 3600.0
    average: Seconds = 120.0
    absent: Seconds = 300.0
    heartbeat: Seconds = 1.0

    def upon(self, before: Settings, after: Settings) -> Settings:
        """Return what was wanted of ``before`` for ``after``: what differs from the first, the rest as the second."""
        pairs = zip(astuple(self), astuple(before), astuple(after), strict=True)
        return Settings(*(mine if mine != old else new for mine, old, new in pairs))


class Try(Struct, frozen=True, order=True, array_like=True):
    """One attempt at the average of a round, and the base of all that is said about one; -1 and -1 is none."""

    round: Since
    attempt: Since

    @property
    def which(self) -> Try:
        """The attempt alone."""
        return Try(self.round, self.attempt)


class OfPeer(Struct, frozen=True, array_like=True, tag=True):
    """What is decided about a peer of the roster."""

    number: Number


class Start(Struct, frozen=True, array_like=True, tag=True):
    """The first entry, confirmed by all but those that may lie: the incarnations of all, in the order of the roster."""

    incarnations: Annotated[tuple[Text, ...], Meta(max_length=MOST_PEERS)]


class Begin(Try, frozen=True, tag=True):
    """These members run the protocol up to its commit step; nothing that is sent is a sum."""

    members: Numbers


class Commit(Try, frozen=True, tag=True):
    """All members have shared; from now on sums may be opened, of these members only."""


class Without(Try, frozen=True, tag=True):
    """Those left finish the same total, over all members, without the lost."""

    lost: Numbers


class Done(Try, frozen=True, tag=True):
    """The result of the round is agreed."""

    digest: Bytes


class Abandon(Try, frozen=True, tag=True):
    """The attempt is given up; after its Commit the round is bound to the same members."""


class Void(Struct, frozen=True, array_like=True, tag=True):
    """The round gives no average; the model stays, and the next round trains anew."""

    round: Number


class Add(Struct, frozen=True, array_like=True, tag=True):
    """A peer joins the roster; it votes once its state folder is admitted."""

    peer: Line


class Remove(OfPeer, frozen=True):
    """A peer leaves for good."""


class Move(OfPeer, frozen=True):
    """A peer has another address."""

    address: Text


class Renew(OfPeer, frozen=True):
    """A peer has another key."""

    key: Bytes


class Admit(OfPeer, frozen=True):
    """A peer came with a new state folder: it votes under its name from the next index on, and the old one never."""

    incarnation: Text


class End(Struct, frozen=True, array_like=True, tag=True):
    """An operator ends the run."""

    reason: Text


Voting = Start | Add | Remove | Renew | Admit
"""Entries that change who votes, or with which key."""

Ask = Add | Remove | Move | Renew | Settings | End
"""What an operator may ask for at any site."""

Entry = Start | Begin | Commit | Without | Done | Abandon | Void | Admit | Ask


def same_wish(one: Entry | None, other: Entry | None) -> bool:
    """Say whether two wishes are granted by the same entry: those who end the run may have other reasons."""
    return one == other or (isinstance(one, End) and isinstance(other, End))
