"""Control messages: small msgpack maps, of which every field is checked before it is used."""

from __future__ import annotations

from typing import Any

import msgpack

from securedfl.network.wire.frames import FrameError

MAX_CONTROL = 1 << 16
"""Bytes of the longest control message."""


def read_control(data: bytes) -> dict[str, Any]:
    """Read a control message: a small map with text keys; anything else is a `FrameError`."""
    if len(data) > MAX_CONTROL:
        raise FrameError("a control message that is too long")
    try:
        message = msgpack.unpackb(data, strict_map_key=True, max_ext_len=0)
    except (ValueError, msgpack.UnpackException, RecursionError, TypeError):
        raise FrameError("an unreadable control message") from None
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise FrameError("a control message that is not a map")
    return message


def text(message: dict[str, Any], name: str) -> str:
    """Return a text field of a control message; anything else is a `FrameError`."""
    value = message.get(name)
    if not isinstance(value, str) or len(value) > 8192:
        raise FrameError(f"a control message without a proper {name!r}")
    return value


def number(message: dict[str, Any], name: str) -> int:
    """Return a whole number of a control message; anything else is a `FrameError`."""
    value = message.get(name)
    if type(value) is not int or not -1 <= value < 1 << 53:
        raise FrameError(f"a control message without a proper {name!r}")
    return value


def peers_of(message: dict[str, Any], name: str, n: int) -> tuple[int, ...]:
    """Return a list of different peers of a roster of n, in order; anything else is a `FrameError`."""
    value = message.get(name)
    if not isinstance(value, list) or not all(type(peer) is int for peer in value):
        raise FrameError(f"a control message without a proper {name!r}")
    if value != sorted(set(value) & set(range(n))):
        raise FrameError(f"a control message with impossible {name!r}")
    return tuple(value)
