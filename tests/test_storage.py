"""Files that survive a crash: whole or not there, private from the beginning, lines without torn ends."""

import errno
import io
import os
import stat
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from securedfl import storage
from securedfl.errors import RunFolderError
from securedfl.federation.run_folder.files import RESUME
from securedfl.network.journal import AGAIN
from securedfl.storage import OWNER, Lines, make_folder, read_arrays, read_lines, replacing, write_arrays, write_text


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            assert path.read_text() == "old"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_disk_before_the_name_is(tmp_path, monkeypatch):
    """The file is flushed, then renamed, then the folder is flushed."""
    done = []
    fsync, rename = os.fsync, os.rename

    def flushed(descriptor):
        done.append(os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2])
        fsync(descriptor)

    monkeypatch.setattr("securedfl.storage.os.fsync", flushed)
    monkeypatch.setattr("pathlib.os.replace", lambda a, b: (done.append("rename"), rename(a, b)))
    write_text(tmp_path / "file", "x")
    assert done == [f".file.{os.getpid()}.tmp", "rename", tmp_path.name]


def test_a_spare_file_is_written_over_and_the_old_one_stays_until_then(tmp_path):
    path, spare = tmp_path / "file", tmp_path / "spare"
    write_text(path, "old")
    spare.write_text("no longer needed")
    room = spare.stat().st_ino
    with replacing(path, spare=spare) as temporary:
        assert path.read_text() == "old"
        with temporary.open("r+b") as file:
            file.write(b"new")
            file.truncate()
    assert path.read_text() == "new"
    assert path.stat().st_ino == room
    with replacing(path, spare=spare) as temporary:
        assert temporary.read_bytes() == b""
        temporary.write_text("newer")
    assert path.read_text() == "newer"
    assert list(tmp_path.iterdir()) == [path]


def test_secrets_are_private_from_the_first_moment(tmp_path):
    before = os.umask(0)
    try:
        with replacing(tmp_path / "secret", mode=OWNER) as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
            temporary.write_text("x")
        assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_what_a_killed_process_left_is_no_obstacle(tmp_path):
    (tmp_path / f".file.{os.getpid()}.tmp").write_text("left by a process with the same number")
    write_text(tmp_path / "file", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_arrays_survive_and_damage_is_told(tmp_path):
    path = tmp_path / "arrays.npz"
    write_arrays(path, {"a": np.arange(3), "text": np.array("x")})
    assert read_arrays(path)["a"].tolist() == [0, 1, 2]
    whole = path.read_bytes()
    for content in (b"", b"noise", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(RunFolderError, match=r"arrays.npz is damaged \(.*delete it"):
            read_arrays(path)
        assert storage.recall(path) is None
    with path.open("wb") as file:
        np.savez(file, a=np.array([object()], dtype=object))
    with pytest.raises(RunFolderError, match="damaged"):
        read_arrays(path)
    assert storage.recall(tmp_path / "missing") is None


def test_lines_end_whole_also_after_a_kill(tmp_path):
    path = tmp_path / "lines"
    code = (
        "import os, pathlib; from securedfl.storage import Lines\n"
        f"lines = Lines(pathlib.Path({str(path)!r})); lines.append('first'); lines._file.write(b'seco')\n"
        "lines._file.flush(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert path.read_text() == "first\nseco"
    assert read_lines(path) == ["first"]
    with pytest.raises(RunFolderError, match="line 2 is cut short"):
        read_lines(path, torn=False)
    lines = Lines(path)
    lines.append("third")
    lines.close()
    assert path.read_text() == "first\nthird\n"
    assert read_lines(path, torn=False) == ["first", "third"]
    assert read_lines(tmp_path / "missing") == []


def test_a_line_is_flushed_before_append_returns(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr("securedfl.storage.os.fsync", lambda _file: flushed.append((tmp_path / "l").read_text()))
    lines = Lines(tmp_path / "l")
    lines.append("a")
    lines.append("b", sync=False)
    assert flushed == ["a\n"]
    lines.sync()
    assert flushed == ["a\n", "a\nb\n"]
    lines.close()


def test_a_place_that_cannot_be_written_is_told_with_advice(tmp_path):
    missing = tmp_path / "missing" / "file"
    with pytest.raises(RunFolderError, match=r"cannot write .*missing/file: No such file.*; do this"):
        write_text(missing, "x", "do this")
    with pytest.raises(RunFolderError, match=r"make the folder .*missing first"):
        write_text(missing, "x")
    with pytest.raises(RunFolderError, match="cannot write"):
        Lines(missing)
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match=r"Not a directory; .*/file is a file; choose another place"):
        write_text(tmp_path / "file" / "below" / "deep", "x")
    with pytest.raises(RunFolderError, match=r"File exists; .*/file is a file; choose another place"):
        make_folder(tmp_path / "file")
    with pytest.raises(RunFolderError, match="cannot write"):
        storage.make_folder(tmp_path / "file" / "below")
    storage.remember(tmp_path / "file" / "below" / "cache.npz", {"a": np.zeros(1)})
    # what is remembered may be somebody's data
    storage.remember(tmp_path / "cache.npz", {"a": np.zeros(1)})
    assert (tmp_path / "cache.npz").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("code", "place", "told"),
    [
        (errno.ENOSPC, "file", "free some space, then go on"),
        (errno.EDQUOT, "file", "free some space, then go on"),
        (errno.EACCES, "file", "mend the permissions of {folder}, then go on"),
        (errno.EROFS, "file", "mount it so that it can be written, then go on"),
        (errno.ENOENT, "gone/file", "make the folder {folder}/gone first, then go on"),
        (errno.EIO, "file", "check the disk and the permissions of {folder}, then go on"),
    ],
)
def test_advice_fits_what_the_system_says(tmp_path, code, place, told):
    error = storage.cannot_write(tmp_path / place, OSError(code, os.strerror(code)), "{mend}, then go on")
    assert str(error).endswith(f"{os.strerror(code)}; {told.format(folder=tmp_path)}")


def test_a_peers_folder_that_was_removed_is_not_a_full_disk(tmp_path):
    folder = tmp_path / "out"
    with pytest.raises(RunFolderError, match=r"make the folder .*out first, then start this peer again"):
        Lines(folder / "metrics.jsonl", AGAIN)
    with pytest.raises(RunFolderError, match=r"make the folder .*out first, then go on: .*--resume.*the peer again"):
        write_text(folder / "summary.json", "{}", RESUME)


def test_arrays_may_have_any_name_and_none_is_lost_in_silence(tmp_path):
    path = tmp_path / "arrays.npz"
    arrays = {name: np.arange(k + 1) for k, name in enumerate(("file", "allow_pickle", "names", "a/b.weight"))}
    write_arrays(path, arrays)
    assert {name: len(array) for name, array in read_arrays(path).items()} == {k: len(v) for k, v in arrays.items()}
    with np.load(path) as found:
        assert set(found.files) == set(arrays)
    whole = path.read_bytes()
    # marked as encrypted
    entry = whole.index(b"PK\x01\x02")
    path.write_bytes(whole[: entry + 8] + b"\x01" + whole[entry + 9 :])
    with pytest.raises(RunFolderError, match="damaged"):
        read_arrays(path)
    with zipfile.ZipFile(io.BytesIO(whole)) as file, zipfile.ZipFile(path, "w") as fewer:
        fewer.comment = file.comment
        for name in file.namelist()[1:]:
            fewer.writestr(name, file.read(name))
    with pytest.raises(RunFolderError, match="some of its arrays are missing"):
        read_arrays(path)


def test_the_same_arrays_have_the_same_bytes_whenever_they_are_written(tmp_path, monkeypatch):
    write_arrays(tmp_path / "a.npz", {"w": np.arange(3), "b": np.ones(2)})
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2033, 5, 18, 3, 33, 20, 2, 138, 0))
    write_arrays(tmp_path / "b.npz", {"w": np.arange(3), "b": np.ones(2)})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
