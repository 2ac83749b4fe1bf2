"""What peers say on their links besides the gossip of the log: settings, certificates, and which result they want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from securedfl.network.core.entries import MOST_PEERS, NAME, Bytes, Number
from securedfl.network.core.messages import Gossip, read
from securedfl.network.wire.frames import MAX_HEAD
from securedfl.network.wire.keys import LONGEST_CERTIFICATE
from securedfl.network.wire.values import Reach

RUN, GENESIS = "run", "genesis"
"""The settings that say which run a peer is of, and how its log begins: without these in common, no common log."""
MOST_CARDS = 128
"""Certificates that travel in one letter."""
Name = Annotated[str, Meta(pattern=rf"^{NAME}\Z")]
Through = Annotated[str, Meta(pattern=rf"^({NAME})?\Z")]


class Hello(Struct, frozen=True, array_like=True, tag=True):
    """The first word on a link: what this side's files say, and its time of day."""

    settings: Annotated[dict[str, str], Meta(max_length=1000)]
    clock: float


class Cards(Struct, frozen=True, array_like=True, tag=True):
    """Certificates that a peer knows (DER)."""

    certificates: Annotated[
        tuple[Annotated[bytes, Meta(max_length=LONGEST_CERTIFICATE)], ...], Meta(max_length=MOST_CARDS)
    ]

    @classmethod
    def of(cls, certificates: Sequence[bytes]) -> list[Cards]:
        """Return as many letters as it takes, each of which fits a link."""
        starts = range(0, len(certificates), MOST_CARDS)
        return [cls(tuple(certificates[start : start + MOST_CARDS])) for start in starts]


class Want(Struct, frozen=True, array_like=True, tag=True):
    """Please send a result, in a stream of this key."""

    round: Number
    digest: Bytes
    key: Annotated[bytes, Meta(max_length=MAX_HEAD)]


class Ways(Struct, frozen=True, array_like=True, tag=True):
    """Whom a peer has a link to, by name: through whom, or directly (an empty text). Read by `securedfl check`."""

    peers: Annotated[dict[Name, Through], Meta(max_length=MOST_PEERS)]

    @classmethod
    def of(cls, reaches: Mapping[str, Reach]) -> Ways:
        """Return the ways that links have."""
        return cls({name: reach.through or "" for name, reach in reaches.items() if reach.linked})


Letter = Hello | Cards | Want | Ways

_decoder: msgspec.msgpack.Decoder[Gossip | Letter] = msgspec.msgpack.Decoder(Gossip | Letter)


def unpack(data: bytes) -> Gossip | Letter | None:
    """Return the message, or None if it is malformed."""
    return read(_decoder, data)


def differences(mine: dict[str, str], theirs: dict[str, str]) -> str:
    """Return which settings differ, in words; empty if none."""
    # that the runs differ is said by what they differ in
    keys = sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))
    keys = [key for key in keys if key not in (RUN, GENESIS)] or keys
    if keys == [GENESIS]:
        return "the log begins with other rounds, deadlines, addresses or fingerprints"
    shown = [f"{_short(key)} is {_short(theirs.get(key))} there and {_short(mine.get(key))} here" for key in keys[:3]]
    return "; ".join(shown) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")


def _short(value: str | None) -> str:
    """Return what another peer wrote, fit for a log: short, and nothing but letters that can be printed."""
    if value is None:
        return "not set"
    plain = "".join(letter if letter.isprintable() else "?" for letter in value[:41])
    return plain if len(plain) <= 40 else plain[:37] + "..."
