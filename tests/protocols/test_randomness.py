"""Masks: the right distribution, independent keys, and seeded draws that do not depend on chunks."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from securedfl.errors import InvalidInputError
from securedfl.protocols import InsecureSeededDraw, secret_uniform
from securedfl.protocols.randomness import keystream


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_secret_draws_are_uniform_and_never_repeat(dtype):
    like = np.empty(200_000, dtype=dtype)
    first, second = secret_uniform(like), secret_uniform(like)
    assert first.dtype == dtype
    assert first.shape == like.shape
    assert first.min() >= 0
    assert first.max() < 1
    counts = np.histogram(first, bins=64, range=(0, 1))[0]
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi_square < 63 + 8 * np.sqrt(2 * 63)  # fails for a fair generator once in 10^10 runs
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("start", [0, 4, 16, 1000, 12_344])
def test_keystream_is_aes_ctr_from_any_place(start):
    key = bytes(range(32))
    whole = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(20_000))
    assert keystream(key, 777, start=start).tobytes() == whole[start : start + 777]


def test_seeded_draws_differ_by_seed_peer_round_and_call_but_not_by_chunk():
    like = np.empty(1000, dtype=np.float32)
    draw = InsecureSeededDraw(1, peer=2, round=3)
    first, second = draw(like), draw(like)
    assert not np.array_equal(first, second)
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        seed, peer, round = other
        assert not np.array_equal(first, InsecureSeededDraw(seed, peer=peer, round=round)(like))
    tail = InsecureSeededDraw(1, peer=2, round=3, offset=613)
    assert np.array_equal(first[613:], tail(like[613:]))
    assert np.array_equal(second[613:], tail(like[613:]))


def test_seeded_draws_are_the_same_on_every_machine():
    values = InsecureSeededDraw(0, peer=0)(np.empty(3, dtype=np.float64))
    assert values.tolist() == [0.10928200233068697, 0.49773043883026524, 0.40436193203585247]


def test_integers_get_no_float_masks():
    with pytest.raises(InvalidInputError, match="float32 and float64"):
        secret_uniform(np.zeros(3, dtype=np.int64))
