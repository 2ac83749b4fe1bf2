"""What SVG pictures made by hand share: images inside them, and the numbers along their edges."""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

Colour = tuple[int, int, int]


def image_of(
    pixels: npt.NDArray[Any], x: float, y: float, side: float, *, palette: Sequence[Colour] = (), title: str = ""
) -> str:
    """Return an image with sharp pixels inside a square.

    Parameters
    ----------
    pixels
        uint8, height x width of grey, or of numbers in the palette; height x width x 3 of red, green and blue.
    x, y, side
        Where the square is, and how large.
    palette, title
        The colours that pixels are numbers of; what is said where the pointer is.
    """
    data, inside = b64encode(_png(pixels, palette)).decode("ascii"), f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<image x="{x}" y="{y}" width="{side}" height="{side}" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{data}">{inside}</image>'
    )


def _png(pixels: npt.NDArray[Any], palette: Sequence[Colour]) -> bytes:
    """Return the bytes of a PNG file; no imaging library is needed for that."""
    height, width = pixels.shape[:2]
    kind = 3 if palette else 0 if pixels.ndim == 2 else 2
    # every line begins with the number of its filter: none
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0))).tobytes()
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0),
        b"PLTE": bytes(value for colour in palette for value in colour),
        b"IDAT": zlib.compress(lines, 9),
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*each) for each in chunks.items() if each[1]) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def ticks(count: int, most: int) -> list[int]:
    """Return whole numbers from 0 on, at most so many, in steps that people count in."""
    step = next(
        factor * 10**power
        for power in range(12)
        for factor in (1, 2, 5)
        if math.ceil(count / (factor * 10**power)) <= most
    )
    return list(range(0, count, step))
