"""What peers tell each other about the log, and what each writes down. One message carries all of it: gossip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from securedfl.network.core.entries import MOST_PEERS, Ask, Bytes, Entry, Number, Numbers, Since, Text, Try

VERSION = 3
"""Of records; those of another version are refused. Messages have the version of the frames that they travel in."""
MOST_ENTRIES = 64
"""Decided entries that travel in one message."""
MOST_PROPOSALS = 4
"""Proposals that travel in one message."""

PREVOTE, PRECOMMIT = 0, 1
Kind = Annotated[int, Meta(ge=0, le=1)]


class Result(Try, frozen=True):
    """The result of an attempt, by the digest of its bytes."""

    digest: Bytes


class Failure(Try, frozen=True):
    """An attempt that makes no progress here: after ``lost`` were left out, waiting in vain for ``peers``.

    Nobody in ``peers``: what this peer had of the attempt is gone, and it can take no further part in it.
    """

    lost: Numbers = ()
    peers: Numbers = ()


NO_TRY, NO_RESULT, NO_FAILURE = Try(-1, -1), Result(-1, -1, b""), Failure(-1, -1)


class Status(Struct, frozen=True, array_like=True):
    """What a peer says about itself, signed; a later one (boot, sequence) replaces it.

    Attributes
    ----------
    peer, incarnation, boot, sequence
        Who says it, from which state folder, after how many starts, and how often it spoke since.
    length
        Of its log.
    ready, forgot
        The round whose update it holds; the round whose update it lost.
    shared, holds, failed
        The attempt whose shares all went out and came in; the result it stored; the attempt that failed.
    model
        The round of the model it has, -1 for none.
    reaches
        Whom it hears directly.
    leaving
        It stops now, politely.
    asks
        What its operator asks for.
    """

    peer: Number
    incarnation: Text
    boot: Number
    sequence: Number
    length: Number = 0
    ready: Since = -1
    forgot: Since = -1
    shared: Try = NO_TRY
    holds: Result = NO_RESULT
    failed: Failure = NO_FAILURE
    model: Since = -1
    reaches: Numbers = ()
    leaving: bool = False
    asks: Ask | None = None
    signature: Bytes = b""

    def newer(self, known: Status | None) -> bool:
        """Say whether it was said later than another, or from another state folder."""
        if known is None or known.incarnation != self.incarnation:
            return True
        return (self.boot, self.sequence) > (known.boot, known.sequence)


class Vote(Struct, frozen=True, array_like=True):
    """A prevote or precommit of the published algorithm; an empty value is its nil."""

    peer: Number
    index: Number
    ballot: Number
    kind: Kind
    value: Bytes
    signature: Bytes = b""


Votes = Annotated[tuple[Vote, ...], Meta(max_length=5 * MOST_PEERS)]


class Proposal(Struct, frozen=True, array_like=True):
    """An entry proposed in a ballot; one proposed before brings the quorum of prevotes that it had in ``valid``."""

    peer: Number
    index: Number
    ballot: Number
    entry: Entry
    valid: Since = -1
    polka: Votes = ()
    signature: Bytes = b""


class Decided(Struct, frozen=True, array_like=True, tag=True):
    """An entry with the quorum of precommits that decided it. Anybody can check it, whoever handed it over.

    An old one may come without votes: those of a later entry name a digest of the state, and so of all entries before.
    """

    index: Number
    entry: Entry
    votes: Votes


class Gossip(Struct, frozen=True, array_like=True, tag=True):
    """What a peer knows and another may not: statuses, what is on the table, and entries that the other lacks."""

    run: Text
    statuses: Annotated[tuple[Status, ...], Meta(max_length=2 * MOST_PEERS)] = ()
    proposals: Annotated[tuple[Proposal, ...], Meta(max_length=MOST_PROPOSALS)] = ()
    votes: Votes = ()
    decided: Annotated[tuple[Decided, ...], Meta(max_length=MOST_ENTRIES)] = ()


class Boot(Struct, frozen=True, array_like=True, tag=True):
    """A record: the process started so many times on this state folder."""

    run: Text
    incarnation: Text
    count: Number
    version: Number = VERSION


class Promise(Struct, frozen=True, array_like=True, tag=True):
    """A record: all that this peer promised at an index. The last one counts.

    Attributes
    ----------
    index, ballot
        Where it is.
    votes
        Its own of this ballot.
    locked, valid
        What it is locked on, and the last entry with a quorum of prevotes, each as if proposed in that ballot.
    way
        The votes that led it to this ballot, so that it can lead others there.
    """

    index: Number
    ballot: Number
    votes: Votes = ()
    locked: Proposal | None = None
    valid: Proposal | None = None
    way: Votes = ()


class Started(Try, frozen=True, tag=True):
    """A record: this peer began an attempt, so it never begins it again (fresh masks would not fit the old ones)."""


Record = Boot | Decided | Promise | Started


@dataclass
class Stored:
    """What counts of the records on a disk: the last of each kind, and of entries the last at each index."""

    boot: Boot | None = None
    promise: Promise | None = None
    started: Started | None = None
    entries: dict[int, Decided] = field(default_factory=dict)

    def add(self, *records: Record) -> Stored:
        """Take in the next records, in the order in which they were written."""
        for record in records:
            match record:
                case Boot():
                    self.boot = record
                case Promise():
                    self.promise = record
                case Started():
                    self.started = record
                case Decided(index):
                    self.entries[index] = record
        return self

    @property
    def log(self) -> list[Decided]:
        """The entries in their order."""
        return [self.entries[index] for index in sorted(self.entries)]

    def records(self, log: Iterable[Decided]) -> Iterator[Record]:
        """Return all records, with this log, one after the other: a log may be long."""
        yield from log
        yield from (record for record in (self.boot, self.promise, self.started) if record is not None)


class Signer(Protocol):
    """Signs with this peer's key and checks the others'; real peers use their TLS keys."""

    def owns(self, key: bytes) -> bool:
        """Say whether this is the key that this peer signs with now; one that was renewed follows in a moment."""

    def sign(self, data: bytes) -> bytes:
        """Return this peer's signature, with the key that it has now."""

    def verify(self, key: bytes, data: bytes, signature: bytes) -> bool:
        """Say whether the signature is that of the key's owner."""


_encoder = msgspec.msgpack.Encoder()
_gossip = msgspec.msgpack.Decoder(Gossip)
_record: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
T = TypeVar("T")


def encode(message: object) -> bytes:
    """Return the bytes of a message or record."""
    return _encoder.encode(message)


def read(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T | None:
    """Return what bytes hold, or None if they are malformed."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decode(data: bytes) -> Gossip | None:
    """Return the message, or None if it is malformed."""
    return read(_gossip, data)


def decode_record(data: bytes) -> Record | None:
    """Return the record, or None if it is malformed or of another version."""
    record = read(_record, data)
    return None if isinstance(record, Boot) and record.version != VERSION else record


def digest(*parts: object) -> bytes:
    """Return the digest of values that `encode` knows."""
    return blake2b(_encoder.encode(parts), digest_size=32).digest()


def signed_part(run: str, incarnation: str, item: Status | Vote | Proposal) -> bytes:
    """Return what the signature of an item covers: all of it, the run, and its author's state folder."""
    return _encoder.encode((run, incarnation, type(item).__name__, msgspec.structs.replace(item, signature=b"")))
