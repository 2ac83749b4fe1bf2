"""Fixed point in the ring."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.protocols import FieldPoint, FixedPoint, Mask, UnencodableError
from securedfl.protocols.masks import mask, values
from securedfl.protocols.randomness import InsecureSeededDraw, keystream, secret_uniform


@settings(max_examples=200, deadline=None)
@given(
    bits=st.sampled_from([32, 64]),
    n=st.integers(1, 5000),
    reach=st.floats(1e-3, 1e5, allow_subnormal=False),
    dtype=st.sampled_from([np.float32, np.float64]),
    sign=st.sampled_from([1, -1]),
)
def test_the_sum_of_the_largest_codes_stays_below_half_the_ring(bits, n, reach, dtype, sign):
    codec = FixedPoint(bits=bits, range=reach)
    largest = np.nextafter(dtype(reach), dtype(0)) if float(dtype(reach)) > reach else dtype(reach)
    code = int(codec.encode(np.array([sign * largest]), n).view(np.int32 if bits == 32 else np.int64)[0])
    assert abs(n * code) < 2 ** (bits - 1)
    f = codec.fraction_bits(bits, n)
    assert f == bits or n * -(-Fraction(reach) * 2 ** (f + 1) // 1) >= 2 ** (bits - 1), "steps are coarser than need be"


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_value_is_rounded_to_the_nearest_step(bits, dtype):
    codec, w = FixedPoint(bits=bits, range=2.0), np.linspace(-2, 2, 1001).astype(dtype)
    back = codec.decode(codec.encode(w, 3) * np.array(3, dtype=f"u{bits // 8}"), 3, np.zeros(0))
    step = 2.0 ** -codec.fraction_bits(bits, 3)
    assert np.abs(back - w.astype(np.float64)).max() <= max(step / 2, 2.0**-51)  # the latter from float64 itself


def test_limits_that_float32_would_round_are_kept():
    w = np.array([0, np.float32(0.1)], dtype=np.float32)  # a little more than a tenth
    with pytest.raises(UnencodableError, match=r"index 1 of a peer is beyond the range of -0\.1 to 0\.1"):
        FixedPoint(bits=32, range=0.1).encode(w, 3)


def test_only_floats_are_encoded():
    with pytest.raises(InvalidInputError, match="not int64"):
        FixedPoint().encode(np.arange(3), 3)


def test_a_mask_is_its_seed():
    m = mask(secret_uniform, np.zeros(1000, np.uint32))
    assert isinstance(m, Mask)
    assert m.nbytes == 32
    assert np.array_equal(m.array, keystream(m.seed, 4000).view("<u4"))
    assert np.array_equal(values(Mask(m.seed, (1000,), np.uint32)), m.array)
    assert m.seed.hex() not in repr(m)
    assert str(m.seed) not in repr(m)
    with pytest.raises(ValueError, match="read-only"):
        m.array[0] = 0


def test_seeds_are_fresh():
    assert len({mask(secret_uniform, np.zeros(4, np.uint64)).seed for _ in range(1000)}) == 1000
    draw = InsecureSeededDraw(0, peer=1)
    again = InsecureSeededDraw(0, peer=1)
    first = [mask(draw, np.zeros(4, np.uint64)).seed for _ in range(100)]
    assert len(set(first)) == 100
    assert first == [mask(again, np.zeros(4, np.uint64)).seed for _ in range(100)]
    assert mask(InsecureSeededDraw(0, peer=1, offset=9), np.zeros(4, np.uint64)).seed not in first


@pytest.mark.parametrize("seed", [b"", b"short"])
def test_a_mask_needs_32_bytes(seed):
    with pytest.raises(InvalidInputError, match="32 bytes of seed"):
        Mask(seed, (3,), np.uint32)


def test_draws_without_seeds_give_arrays():
    drawn = mask(lambda like: np.ones_like(like), np.zeros(3, np.uint32))
    assert values(drawn).tolist() == [1, 1, 1]


def test_the_whole_ring_is_drawn():
    for dtype in (np.uint32, np.uint64):
        drawn = secret_uniform(np.zeros(4096, dtype))
        assert drawn.dtype == dtype
        assert drawn.max() > 0.9 * np.iinfo(dtype).max
        assert np.bitwise_and.reduce(drawn) == 0


@pytest.mark.parametrize("codec", [FixedPoint, FieldPoint])
@pytest.mark.parametrize(("bits", "limit"), [(16, 1e-10), (16, 1e-8), (16, 1e-30), (32, 1e-20), (64, 1e-30), (64, 1.0)])
def test_small_ranges_have_all_the_steps_that_their_bits_allow(codec, bits, limit):
    """Numbers of a small range became zero, without a word."""
    chosen = codec(bits=bits, range=limit)
    w = np.full(3, limit, dtype=np.float64 if bits == 64 else np.float32)
    w = np.minimum(w, w.dtype.type(0.999 * limit))
    step = chosen.step(w, 9)
    assert 9 * limit / step > chosen.modulus(bits) / 8
    nine = sum(chosen._signed(chosen.encode(w, 9)).astype(object)[0] for _ in range(9))
    assert abs(nine * step / 9 - float(w[0])) <= step / 2
    with pytest.raises(ConfigError, match="too small for any steps"):
        codec(bits=bits, range=5e-324).step(w, 9)
