"""Encoded images of one size as an array."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence

import numpy as np

from securedfl.errors import InvalidInputError, needing
from securedfl.parameters import Array

GREY = ("1", "L")
"""Modes of images that have one channel."""


def decode(images: Sequence[tuple[str, Callable[[], bytes]]]) -> Array:
    """Return images as uint8 in N, channel, height, width order; grey if all of them are.

    Parameters
    ----------
    images
        What each is called in errors, and what gives its bytes.
    """
    arrays: list[Array] = []
    first = ""
    for name, read in images:
        pixels = decode_one(name, read)
        first = first or name
        if arrays and pixels.shape[:2] != arrays[0].shape[:2]:
            (h, w), (height, width) = pixels.shape[:2], arrays[0].shape[:2]
            raise InvalidInputError(
                f"{name} has {w}x{h} pixels, but {first} has {width}x{height}; bring all images to one size"
            )
        arrays.append(pixels)
    if len({pixels.ndim for pixels in arrays}) > 1:
        arrays = [np.repeat(pixels[..., None], 3, axis=2) if pixels.ndim == 2 else pixels for pixels in arrays]
    stacked = np.stack(arrays)
    return stacked[:, None] if stacked.ndim == 3 else np.ascontiguousarray(stacked.transpose(0, 3, 1, 2))


def decode_one(
    name: str, read: Callable[[], bytes], *, mode: str | None = None, advice: str = "repair or remove it"
) -> Array:
    """Return an image as uint8, channels last.

    Parameters
    ----------
    name, read
        What it is called in errors, and what gives its bytes.
    mode
        "L" for grey, "RGB" for colours; by default what the image has.
    advice
        What to do if it cannot be decoded.
    """
    with needing(f"reading {name}"):
        from PIL import Image
    try:
        with Image.open(io.BytesIO(read())) as image:
            if image.mode.startswith("I;16"):
                # the upper half of each number: Pillow would cut all that is above 255
                return np.asarray(Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert(mode or "L"))
            if image.mode in ("I", "F"):
                raise ValueError(f"its numbers, of mode {image.mode}, are no shades of a known range")
            return np.asarray(image.convert(mode or ("L" if image.mode in GREY else "RGB")))
    except Exception as error:  # damaged bytes can fail in any way inside a decoder
        reason = re.sub(r" <_io.*>$", "", str(error)) or type(error).__name__
        raise InvalidInputError(f"{name}: the image cannot be decoded ({reason}); {advice}") from None
