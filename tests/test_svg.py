"""Images inside of SVG pictures, and the numbers along their edges."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from securedfl.svg import Colour, image_of, ticks

COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255))


@pytest.mark.parametrize(("shape", "palette"), [((3, 5), ()), ((3, 5, 3), ()), ((3, 5), COLOURS)])
def test_an_image_has_its_pixels_and_its_title(shape: tuple[int, ...], palette: tuple[Colour, ...]) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape) % (len(palette) or 255)
    text = image_of(pixels, 1, 2, 30, palette=palette, title="a & b")
    assert "<title>a &amp; b</title>" in text
    found = image.open(io.BytesIO(base64.b64decode(text.partition("base64,")[2].partition('"')[0])))
    assert np.array_equal(np.asarray(found), pixels)
    if palette:
        assert np.array_equal(np.asarray(found.convert("RGB")), np.array(palette, dtype=np.uint8)[pixels])


@pytest.mark.parametrize(("count", "most"), [(1, 10), (9, 12), (99, 12), (1000, 10), (13, 12)])
def test_ticks_are_whole_and_few(count: int, most: int) -> None:
    found = ticks(count, most)
    assert found[0] == 0
    assert len(found) <= most
    assert all(isinstance(tick, int) and tick < count for tick in found)
