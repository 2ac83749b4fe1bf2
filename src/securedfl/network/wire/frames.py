"""Frames: what travels inside a TLS connection. A fixed header (kind, channel, length), then so many bytes.

Every kind has a longest length, so that nobody can make another one allocate more; everything else is a `FrameError`.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from securedfl.network.wire.values import FrameError

VERSION = 5
"""Of frames and of all that peers send in them: letters, gossip of the log, data. Others are told, and not linked."""
MAX_CONTROL = 1 << 20
MAX_HEAD = 512
"""Bytes that name a stream, or that describe a message of one."""
MOST_WORDS = 512
"""Bytes of a reason."""
PIECE = 1 << 18
"""Bytes of a bulk message per frame: control messages wait for one piece at most."""
WINDOW = 1 << 20
"""Bytes that a sender may send on a stream that nobody has accepted yet."""
FLOW = 8 << 20
"""Bytes that may be on their way on a stream that was accepted."""

_HEADER = struct.Struct(">BII")
HEADER_BYTES = _HEADER.size
_MESSAGE = struct.Struct(">Q")
_NUMBER = struct.Struct(">I")
_LONGEST_MESSAGE = 1 << 44


class Kind(IntEnum):
    """What a frame is about."""

    HELLO = 1
    """The first frame of each side: the version."""
    LINK = 2
    """The peer whose name comes first has chosen this connection to be the link."""
    CLOSE = 3
    """The other side hangs up: whether it refuses this one, for its key, version or what it said; then why."""
    PING = 4
    PONG = 5
    JOIN = 6
    """The first frame to a relay: with whom to be joined, by the fingerprint of its certificate."""
    JOINED = 7
    """The relay's answer; what follows is no longer its business."""
    CONTROL = 8
    OPEN = 9
    """A bulk stream begins; its key. The channel is the sender's number for it."""
    MESSAGE = 10
    """A message of a stream begins: its length and head."""
    DATA = 11
    END = 12
    RESET = 13
    """The sender gives a stream up."""
    CREDIT = 14
    """The receiver has room for so many more bytes."""
    DONE = 15
    """The receiver has everything up to the end of the stream."""
    STOP = 16
    """The receiver does not want a stream; why."""


_LONGEST = {
    Kind.HELLO: 64,
    Kind.CLOSE: 1 + MOST_WORDS,
    Kind.JOIN: 32,
    Kind.CONTROL: MAX_CONTROL,
    Kind.OPEN: MAX_HEAD,
    Kind.MESSAGE: MAX_HEAD + _MESSAGE.size,
    Kind.DATA: PIECE,
    Kind.CREDIT: _NUMBER.size,
    Kind.STOP: 512,
}
"""Bytes of the longest frame of each kind; the others have none."""


def header(kind: Kind, channel: int, length: int) -> bytes:
    """Return the header of a frame."""
    return _HEADER.pack(kind, channel, length)


def frame(kind: Kind, channel: int = 0, payload: bytes = b"") -> bytes:
    """Return a whole frame."""
    return _HEADER.pack(kind, channel, len(payload)) + payload


def read_header(data: bytes | memoryview) -> tuple[Kind, int, int]:
    """Return kind, channel and length; `FrameError` if there is no such kind or it is too long."""
    number, channel, length = _HEADER.unpack(data)
    try:
        kind = Kind(number)
    except ValueError:
        raise FrameError("bytes that are not a frame") from None
    if length > _LONGEST.get(kind, 0):
        raise FrameError(f"a frame {kind.name} of {length} bytes, which is too long")
    return kind, channel, length


def message(head: bytes, nbytes: int) -> bytes:
    """Return what a frame MESSAGE holds."""
    return _MESSAGE.pack(nbytes) + head


def read_message(payload: bytes) -> tuple[bytes, int]:
    """Return head and length of a bulk message."""
    if len(payload) < _MESSAGE.size:
        raise FrameError("a bulk message was cut short")
    (nbytes,) = _MESSAGE.unpack_from(payload)
    if nbytes > _LONGEST_MESSAGE:
        raise FrameError("a bulk message that is too long")
    return payload[_MESSAGE.size :], nbytes


def number(value: int) -> bytes:
    """Return what a frame CREDIT holds."""
    return _NUMBER.pack(value)


def read_number(payload: bytes) -> int:
    """Return the number that a frame CREDIT holds."""
    if len(payload) != _NUMBER.size:
        raise FrameError("a number was cut short")
    (value,) = _NUMBER.unpack(payload)
    return int(value)


def text(payload: bytes) -> str:
    """Return a reason that the other side gave, made harmless for logs."""
    return "".join(letter if letter.isprintable() else "?" for letter in payload.decode("utf-8", "replace"))
