"""Parcels: how one message of a protocol travels in a stream.

A parcel is a head and a body. The head has a fixed length; it names run, round, attempt, step and chunk, and describes
the array. The body is the array's raw little-endian bytes, or the 32-byte seed of a mask. Nothing is executed, guessed
or allocated on behalf of the sender: a head that is not exactly as expected is an error, memory is given for announced
messages only (`Mailbox.expects`), and the array that `message_of` returns is a view of the received bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from securedfl.network.wire.values import FrameError
from securedfl.protocols.masks import Mask
from securedfl.protocols.steps import Array

DTYPES = ("<f4", "<f8", "<u2", "<u4", "<u8")
SEED_BYTES = 32
_HEAD = struct.Struct("<16sIIIIB?Q")
_MOST = 1 << 40


@dataclass(frozen=True, slots=True)
class Spec:
    """What a message looks like: an array of a dtype and length, or a mask that travels as its seed."""

    dtype: str
    count: int
    seeded: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the body."""
        return SEED_BYTES if self.seeded else self.count * int(self.dtype[2])


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a run a message belongs."""

    run: bytes
    round: int
    attempt: int
    step: int
    chunk: int


def spec_of(message: Any) -> Spec:
    """Describe a message of a protocol: an array, or a mask with a ``seed``."""
    dtype = np.dtype(message.dtype).newbyteorder("<").str
    if dtype not in DTYPES or len(message.shape) != 1:
        raise FrameError(f"a message of dtype {dtype} and {len(message.shape)} axes cannot travel")
    return Spec(dtype, int(message.shape[0]), hasattr(message, "seed"))


def pack(place: Position, message: Any) -> tuple[bytes, bytes | Array]:
    """Return head and body of a message; the body is no copy, because what a protocol has yielded is read-only."""
    spec = spec_of(message)
    dtype = DTYPES.index(spec.dtype)
    head = _HEAD.pack(place.run, place.round, place.attempt, place.step, place.chunk, dtype, spec.seeded, spec.count)
    if spec.seeded:
        return head, bytes(message.seed)
    message.flags.writeable = False
    return head, np.ascontiguousarray(message, dtype=spec.dtype)


def read_head(head: bytes) -> tuple[Position, Spec]:
    """Read a head; anything that is not exactly one raises `FrameError`."""
    if len(head) != _HEAD.size:
        raise FrameError("a parcel with a head of the wrong length")
    run, round_, attempt, step, chunk, dtype, seeded, count = _HEAD.unpack(head)
    if dtype >= len(DTYPES) or count >= _MOST:
        raise FrameError("a parcel with a number out of range")
    if seeded and DTYPES[dtype][1] != "u":
        raise FrameError("a parcel with a seed for a mask that is not of a ring")
    return Position(run, round_, attempt, step, chunk), Spec(DTYPES[dtype], count, seeded)


def message_of(spec: Spec, body: memoryview) -> Any:
    """Return what a protocol is to receive: an array, or a mask that is expanded from its seed when it is used."""
    if not spec.seeded:
        return np.frombuffer(body, dtype=spec.dtype)
    return Mask(bytes(body), (spec.count,), np.dtype(spec.dtype))
