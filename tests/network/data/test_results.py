"""Results: whole on disk before they count, and written over the files of those that nobody needs any more."""

import hashlib

import numpy as np
import pytest

from securedfl.errors import RunFolderError
from securedfl.network.data.results import Results


def vector(seed, size=1000):
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def test_a_result_is_named_by_the_sha256_of_its_bytes(tmp_path):
    """State folders of earlier versions stay readable only as long as this holds."""
    result = Results(tmp_path, 1000, "float32").store(3, 0, vector(1))
    assert result.digest == hashlib.sha256(vector(1).tobytes()).digest()
    assert (tmp_path / f"3-0-{result.digest.hex()}.bin").read_bytes() == vector(1).tobytes()


def test_the_file_of_a_dropped_result_is_written_over(tmp_path):
    results = Results(tmp_path, 1000, "float32")
    old = results.store(0, 0, vector(0))
    room = next(tmp_path.glob("*.bin")).stat().st_ino
    results.store(1, 0, vector(1))
    results.keep_from(1)
    with pytest.raises(RunFolderError, match="no result of round 0"):
        results.load(0, old.digest)
    new = results.store(2, 0, vector(2))
    path = tmp_path / f"2-0-{new.digest.hex()}.bin"
    assert path.stat().st_ino == room
    assert path.read_bytes() == vector(2).tobytes()
    assert [result.round for result in Results(tmp_path, 1000, "float32").held] == [1, 2]


def test_what_is_written_over_half_is_not_taken_for_a_result(tmp_path, monkeypatch):
    """A crash between the first byte and the rename leaves no file that looks like a result."""
    results = Results(tmp_path, 1000, "float32")
    results.drop(results.store(0, 0, vector(0)))

    def killed(_descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr("securedfl.storage.os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        results.store(1, 0, vector(1))
    assert Results(tmp_path, 1000, "float32").held == []


def test_a_spare_of_another_length_leaves_no_tail(tmp_path):
    longer = Results(tmp_path, 2000, "float32")
    longer.drop(longer.store(0, 0, vector(0, 2000)))
    shorter = Results(tmp_path, 1000, "float32")
    kept = shorter.store(1, 0, vector(1))
    assert np.array_equal(Results(tmp_path, 1000, "float32").load(1, kept.digest), vector(1))


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    """It is as long as a model: after some kills the disk would be full."""
    (tmp_path / ".3-0-00.bin.12345.tmp").write_bytes(bytes(1000))
    Results(tmp_path, 1000, "float32")
    assert not list(tmp_path.iterdir())
