"""The frame decoder takes exactly frames, and nothing else: round trips, damage and noise."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.network.wire.frames import (
    DTYPES,
    FrameError,
    Place,
    array_of,
    bundle,
    decode,
    encode,
    unbundle,
)

RUN = bytes(range(16))
places = st.builds(
    Place,
    st.just(RUN),
    st.integers(0, 2**40 - 1),
    st.integers(0, 2**40 - 1),
    st.integers(0, 2**20 - 1),
    st.integers(0, 2**32 - 1),
)


@given(places, st.sampled_from(DTYPES), st.integers(0, 50))
def test_arrays_survive_the_wire(place, dtype, count):
    array = np.arange(count).astype(dtype)
    frame = decode(encode(place, array))
    assert frame.place == place
    np.testing.assert_array_equal(array_of(frame), array)
    assert not array_of(frame).flags.writeable


def test_a_mask_travels_as_its_seed():
    mask = SimpleNamespace(seed=b"s" * 32, shape=(1 << 20,), dtype=np.uint32)
    data = encode(Place(RUN, 1, 2, 3, 4), mask)
    assert len(data) < 100
    frame = decode(data)
    assert (bytes(frame.body), frame.spec.count, frame.spec.seeded) == (b"s" * 32, 1 << 20, True)


@settings(max_examples=500)
@given(st.binary(max_size=300))
def test_noise_is_never_a_frame(data):
    with pytest.raises(FrameError):
        decode(data)


@settings(max_examples=500)
@given(st.binary(max_size=80))
def test_noise_behind_a_valid_prefix_is_never_a_frame(noise):
    for length in (0, len(noise) // 2, len(noise), len(noise) + 1):
        with pytest.raises(FrameError):
            decode(b"SDF1" + length.to_bytes(2, "little") + noise)


@settings(max_examples=500)
@given(st.data())
def test_damage_raises_or_changes_only_what_the_header_says(data):
    """A flipped byte either raises `FrameError` or yields another well-formed frame, never another exception."""
    good = bytearray(encode(Place(RUN, 1, 2, 3, 4), np.arange(5, dtype="<f4")))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    for damaged in (bytes(good), bytes(good[:cut]), bytes(good) + b"\0"):
        try:
            frame = decode(damaged)
        except FrameError:
            continue
        assert len(frame.body) == frame.spec.nbytes
        array_of(frame) if not frame.spec.seeded else None


@settings(max_examples=300)
@given(st.data())
def test_bundles_are_whole_or_refused(data):
    items = [(Place(RUN, 1, 2, 3, k), np.arange(k, dtype="<f4")) for k in range(data.draw(st.integers(0, 4)))]
    good = bundle(items)
    assert [frame.place for frame in unbundle(good)] == [place for place, _ in items]
    damaged = bytearray(good + data.draw(st.binary(max_size=3)))
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FrameError):
        assert all(len(frame.body) == frame.spec.nbytes for frame in unbundle(bytes(damaged)))


HEADER = [RUN, 1, 2, 3, 4, 0, 1, False]


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, b"short"),
        (0, "text that is long"),
        (1, -1),
        (1, 2**40),
        (2, 1.0),
        (3, True),
        (4, 2**32),
        (5, 4),
        (5, -1),
        (6, 2**40),
        (6, None),
        (7, 1),
        (7, True),
    ],
)
def test_every_field_is_checked(position, value):
    fields = list(HEADER)
    fields[position] = value
    header = msgpack.packb(fields)
    with pytest.raises(FrameError):
        decode(b"SDF1" + len(header).to_bytes(2, "little") + header + bytes(4))


@pytest.mark.parametrize("header", [HEADER[:-1], [*HEADER, 0], {"run": RUN}, 7, [HEADER], [[[[[[[[1]]]]]]]], None])
def test_headers_of_another_shape(header):
    packed = msgpack.packb(header)
    with pytest.raises(FrameError):
        decode(b"SDF1" + len(packed).to_bytes(2, "little") + packed + bytes(4))


def test_a_huge_count_is_refused_without_allocating():
    header = msgpack.packb([RUN, 1, 2, 3, 4, 0, 2**39, False])
    with pytest.raises(FrameError, match="announces"):
        decode(b"SDF1" + len(header).to_bytes(2, "little") + header + bytes(4))


@pytest.mark.parametrize(
    "array", [np.zeros(3, dtype=np.int64), np.zeros((2, 2)), np.zeros(2, dtype=object), np.zeros(2, ">i2")]
)
def test_only_vectors_of_known_dtypes_leave(array):
    with pytest.raises(FrameError):
        encode(Place(RUN, 0, 0, 0, 0), array)
