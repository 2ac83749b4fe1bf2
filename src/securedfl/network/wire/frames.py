"""Frames: how one message of a protocol looks on the wire.

A frame is ``magic | header length | header | body``. The header is a msgpack list that names run, round, attempt, step
and chunk and describes the array; the body is the array's raw little-endian bytes, or the 32-byte seed of a mask.
Nothing is executed, guessed or allocated on behalf of the sender: a header that is not exactly as expected is an error,
and the array that `message` returns is a view of the received bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from securedfl.network.links.values import FrameError

MAGIC = b"SDF1"
MAX_HEADER = 256
DTYPES = ("<f4", "<f8", "<u4", "<u8")
SEED_BYTES = 32
_PREFIX = struct.Struct("<4sH")
_LENGTH = struct.Struct("<I")
_LIMITS = {"round": 1 << 40, "attempt": 1 << 40, "step": 1 << 20, "chunk": 1 << 32, "count": 1 << 40}


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
class Place:
    """Where in a run a message belongs."""

    run: bytes
    round: int
    attempt: int
    step: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame: its place, what it claims to hold, and its body (a view of the received bytes)."""

    place: Place
    spec: Spec
    body: memoryview


def spec_of(message: Any) -> Spec:
    """Describe a message of a protocol: an array, or a mask with a ``seed``."""
    dtype = np.dtype(message.dtype).newbyteorder("<").str
    if dtype not in DTYPES or len(message.shape) != 1:
        raise FrameError(f"a message of dtype {dtype} and {len(message.shape)} axes cannot travel")
    return Spec(dtype, int(message.shape[0]), hasattr(message, "seed"))


def encode(place: Place, message: Any) -> bytes:
    """Return the frame of a message."""
    return b"".join(_parts(place, message))


def bundle(items: Iterable[tuple[Place, Any]]) -> bytes:
    """Return several frames as one gRPC message, each behind its length: a message costs more than its bytes."""
    parts: list[Any] = []
    for place, message in items:
        frame = _parts(place, message)
        parts.append(_LENGTH.pack(sum(len(part) for part in frame)))
        parts += frame
    return b"".join(parts)


def unbundle(data: bytes) -> Iterator[Frame]:
    """Read the frames of a bundle, one by one; anything else raises `FrameError`."""
    view, at = memoryview(data), 0
    while at < len(view):
        if len(view) - at < _LENGTH.size:
            raise FrameError("a bundle was cut short")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if length > len(view) - at:
            raise FrameError("a bundle was cut short")
        yield decode(view[at : at + length])
        at += length


def _parts(place: Place, message: Any) -> list[Any]:
    spec = spec_of(message)
    header = msgpack.packb(
        [
            place.run,
            place.round,
            place.attempt,
            place.step,
            place.chunk,
            DTYPES.index(spec.dtype),
            spec.count,
            spec.seeded,
        ]
    )
    prefix = _PREFIX.pack(MAGIC, len(header))
    if spec.seeded:
        return [prefix, header, message.seed]
    array = np.ascontiguousarray(message, dtype=spec.dtype)
    return [prefix, header, array.data.cast("B") if array.size else b""]


def decode(data: bytes | memoryview) -> Frame:
    """Read a frame; anything that is not exactly one raises `FrameError`."""
    if len(data) < _PREFIX.size:
        raise FrameError("a frame was cut short")
    magic, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise FrameError("bytes that are not a frame")
    if length > MAX_HEADER or len(data) < _PREFIX.size + length:
        raise FrameError("a frame with a header of the wrong length")
    view = memoryview(data)
    body = view[_PREFIX.size + length :]
    run, numbers, seeded = _header(view[_PREFIX.size : _PREFIX.size + length])
    round_, attempt, step, chunk, dtype, count = numbers
    spec = Spec(DTYPES[dtype], count, seeded)
    if len(body) != spec.nbytes:
        raise FrameError(f"a frame announces {spec.nbytes} bytes and holds {len(body)}")
    return Frame(Place(run, round_, attempt, step, chunk), spec, body)


def array_of(frame: Frame) -> np.ndarray[Any, Any]:
    """Return the array of a frame that holds one: a read-only view of the received bytes, not a copy."""
    return np.frombuffer(frame.body, dtype=frame.spec.dtype)


def message_of(frame: Frame) -> Any:
    """Return what a protocol is to receive: an array, or a mask that is expanded from its seed when it is used."""
    if not frame.spec.seeded:
        return array_of(frame)
    from securedfl.protocols.masks import Mask

    return Mask(bytes(frame.body), (frame.spec.count,), np.dtype(frame.spec.dtype))


def _header(data: memoryview) -> tuple[bytes, list[int], bool]:
    try:
        fields = msgpack.unpackb(
            data,
            raw=True,
            use_list=True,
            strict_map_key=True,
            max_array_len=8,
            max_map_len=0,
            max_ext_len=0,
            max_str_len=0,
            max_bin_len=32,
        )
    except (ValueError, msgpack.UnpackException, RecursionError, TypeError):
        raise FrameError("a frame with an unreadable header") from None
    if not isinstance(fields, list) or len(fields) != 8:
        raise FrameError("a frame with a header of the wrong shape")
    run, *numbers, seeded = fields
    if not isinstance(run, bytes) or len(run) != 16 or not isinstance(seeded, bool):
        raise FrameError("a frame with a header of the wrong shape")
    limits = [*list(_LIMITS.values())[:4], len(DTYPES), _LIMITS["count"]]
    for number, limit in zip(numbers, limits, strict=True):
        if type(number) is not int or not 0 <= number < limit:
            raise FrameError("a frame with a number out of range")
    if seeded and DTYPES[numbers[4]][1] != "u":
        raise FrameError("a frame with a seed for a mask that is not of a ring")
    return run, numbers, seeded


__all__ = ["Frame", "FrameError", "Place", "Spec", "decode", "encode"]
