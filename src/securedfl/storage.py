"""Files that survive a crash: replaced as a whole, or grown line by line. The only place that calls fsync.

What the system refuses is a `RunFolderError` that names the file and ends with the caller's advice.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from securedfl.errors import ConfigError, RunFolderError

Arrays = dict[str, npt.NDArray[Any]]

ADVICE = "{mend}, then try again"
"""What to do about a file that cannot be written; ``{mend}`` stands for what fits the reason."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ANYBODY, OWNER = 0o666, 0o600
"""Who may read a file: whomever the user's umask allows, or nobody else, for keys and private parameters."""

_DAMAGED = (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What reading arrays raises if their file is missing, cut short or changed."""


_RECORD = struct.Struct("<III")
"""Before a record: its length, and the checksums of that and of the record."""


@contextmanager
def replacing(path: Path, advice: str = ADVICE, *, mode: int = ANYBODY, spare: Path | None = None) -> Iterator[Path]:
    """Give an empty file to write to, with its final permissions; flushed to disk, it then takes the place of ``path``.

    Whoever reads ``path`` meanwhile, or after an error or a crash, finds what was there before. A ``spare`` is a file
    that nobody needs any more: if it is there, it is given instead of an empty one, to be written over. That is faster
    for a large file, because it has its room on disk and in the system's memory already.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        # a process with this number may have been killed here before
        temporary.unlink(missing_ok=True)
        if spare is not None and spare.exists():
            spare.replace(temporary)
        else:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        # the rename itself
        _flush(path.parent)
    except OSError as error:
        raise cannot_write(path, error, advice) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def look_at_types(*kinds: Any) -> None:
    """Let msgspec look at types when their module is imported: threads that do so at once, the first time, crash it."""
    for kind in kinds:
        msgspec.json.Decoder(kind)


def write_text(path: Path, text: str, advice: str = ADVICE, *, mode: int = ANYBODY) -> None:
    """Replace a text file."""
    with replacing(path, advice, mode=mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes, advice: str = ADVICE, *, mode: int = ANYBODY) -> None:
    """Replace a file of bytes."""
    with replacing(path, advice, mode=mode) as temporary:
        temporary.write_bytes(content)


def write_arrays(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], advice: str = ADVICE, *, mode: int = ANYBODY
) -> None:
    """Replace a file of named arrays (npz)."""
    # as numpy.savez does, which has words of its own that no array could be called by
    with replacing(path, advice, mode=mode) as temporary, zipfile.ZipFile(temporary, "w") as file:
        # a damaged file may have lost some
        file.comment = _count(arrays)
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def _count(arrays: Sized) -> bytes:
    return b"%d arrays" % len(arrays)


def read_arrays(path: Path) -> Arrays:
    """Read what `write_arrays` wrote; a file that is missing, damaged or holds pickles is a `RunFolderError`."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
            count = stored.zip.comment
    except _DAMAGED as error:
        raise damaged(path, error, "delete it") from None
    # one that numpy wrote has none
    if count not in (b"", _count(arrays)):
        raise damaged(path, "some of its arrays are missing", "delete it")
    # what does not begin as an array is returned as bytes
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise damaged(path, "it holds something else than arrays", "delete it")
    return arrays


def make_folder(path: Path, advice: str = ADVICE, *, private: bool = False) -> None:
    """Make a folder and those above it, where they are missing; a private one is closed to all but its owner."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if private:
            path.chmod(0o700)
    except OSError as error:
        raise cannot_write(path, error, advice) from None


class _Growing:
    """An open file that only grows, and tells what the system refuses."""

    _file: BinaryIO

    def __init__(self, path: Path, advice: str) -> None:
        self._path, self._advice = path, advice

    def close(self) -> None:
        """Close the file; `append` has flushed all that was added, and told what went wrong."""
        with suppress(OSError):
            self._file.close()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise cannot_write(self._path, error, self._advice) from None


class Lines(_Growing):
    """A file that only grows. What a kill left of a last line is cut off first, so that lines never run together."""

    def __init__(self, path: Path, advice: str = ADVICE) -> None:
        super().__init__(path, advice)
        with self._telling():
            self._file = path.open("ab")
            self._file.truncate(path.read_bytes().rfind(b"\n") + 1)

    def append(self, line: str, *, sync: bool = True) -> None:
        """Add a line; it is on disk when this returns, or with the operating system if ``sync`` is off."""
        with self._telling():
            self._file.write(line.encode() + b"\n")
            self._file.flush()
        if sync:
            self.sync()

    def sync(self) -> None:
        """Wait until all lines are on disk."""
        with self._telling():
            os.fsync(self._file.fileno())


class Records(_Growing):
    """A file of records that only grows, each with checksums.

    What a crash tore off at the end is cut, and told apart from damage in the middle, which is an error.

    Attributes
    ----------
    found
        The records that were in it when it was opened.
    """

    def __init__(self, path: Path, advice: str = ADVICE, *, mend: str = "restore it from a copy") -> None:
        super().__init__(path, advice)
        with self._telling():
            self.found, end = read_records(path, mend)
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, OWNER), "r+b")
            self._file.truncate(end)
            self._file.seek(end)
            _flush(path.parent)

    def append(self, *records: bytes) -> None:
        """Add records; they are on disk when this returns."""
        with self._telling():
            self._file.write(b"".join(self._framed(record) for record in records))
            self._file.flush()
            os.fsync(self._file.fileno())

    def replace(self, records: Iterable[bytes]) -> None:
        """Put these records in the place of all others."""
        with replacing(self._path, self._advice, mode=OWNER) as temporary, temporary.open("wb") as file:
            file.writelines(self._framed(record) for record in records)
        with self._telling():
            self._file.close()
            self._file = self._path.open("r+b")
            self._file.seek(0, os.SEEK_END)

    def _framed(self, record: bytes) -> bytes:
        length = len(record).to_bytes(4, "little")
        return _RECORD.pack(len(record), zlib.crc32(length), zlib.crc32(record)) + record


def read_records(path: Path, mend: str = "restore it from a copy") -> tuple[list[bytes], int]:
    """Return the records of a file, none if it is missing, and where the last whole one ends."""
    try:
        data = path.read_bytes() if path.exists() else b""
    except IsADirectoryError:
        raise damaged(path, "it is a folder", mend) from None
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}; check its permissions") from None
    found, at, size = list[bytes](), 0, _RECORD.size
    while len(data) - at >= size:
        length, head_sum, record_sum = _RECORD.unpack_from(data, at)
        end = at + size + length
        whole = zlib.crc32(data[at : at + 4]) == head_sum
        if whole and end > len(data):
            break
        if not whole or zlib.crc32(data[at + size : end]) != record_sum:
            # a crash leaves nothing, or zeros, after what it tore, which may be the head of a record too
            if not any(data[end if whole else at + size :]):
                break
            raise damaged(path, f"the record at byte {at}", mend)
        found.append(data[at + size : end])
        at = end
    return found, at


def read_lines(path: Path, *, torn: bool = True, mend: str = "restore it from a copy") -> list[str]:
    """Return the lines of a file, none if it is missing; a last line that a kill cut short is left out.

    With ``torn`` off such a line is an error, as it is in a file that was finished.
    """
    try:
        *lines, rest = path.read_bytes().split(b"\n") if path.exists() else [b""]
        if rest and not torn:
            raise damaged(path, f"line {len(lines) + 1} is cut short", mend)
        return [line.decode() for line in lines]
    except UnicodeDecodeError:
        raise damaged(path, "it is not UTF-8 text", mend) from None
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}; check its permissions") from None


def cache_folder() -> Path:
    """Return the user's cache folder, ``$XDG_CACHE_HOME/securedfl`` or ``~/.cache/securedfl``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "securedfl"


def fingerprint(*about: object, files: Iterable[Path]) -> str:
    """Hash what is decoded once and kept: path, size and time of every file, and what else decides."""
    state = [*about, *((str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files)]
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]


def recall(path: Path) -> Arrays | None:
    """Return arrays from the cache, or None if there are none that are intact, so that they are made again."""
    with suppress(RunFolderError):
        return read_arrays(path)
    return None


def remember(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Store arrays in the cache, for their owner only, as they may be private; if it cannot be written, do not."""
    with suppress(RunFolderError):
        make_folder(path.parent)
        write_arrays(path, arrays, mode=OWNER)


def path_of(given: str | Path, what: str) -> Path:
    """Return what a caller of the library gave as a path; what is none, or may not be looked at, is an error."""
    try:
        path = Path(given)
        seen = path.is_dir() and not os.access(path, os.R_OK | os.X_OK)
    except TypeError:
        raise ConfigError(f"{what} must be given as a path, not {given!r:.80}") from None
    except OSError as error:
        raise RunFolderError(f"cannot look at {given}: {error.strerror}; mend its rights, or name another") from None
    if seen:
        raise RunFolderError(f"{what} {path} may not be read; mend its rights, or name another")
    return path


def cannot_write(path: Path, error: OSError, advice: str = ADVICE) -> RunFolderError:
    """Return the error that tells which file the system refused, why, and what to do."""
    return RunFolderError(f"cannot write {path}: {error.strerror or error}; {_mended(path, error, advice)}")


def _mended(path: Path, error: OSError, advice: str) -> str:
    """Return an advice with what fits the reason in it."""
    if "{mend}" not in advice:
        return advice
    # of os, which says no where a folder above may not be searched, and does not raise
    in_the_way = next((str(place) for place in (path, *path.parents) if os.path.isfile(place)), "")
    if in_the_way and isinstance(error, FileExistsError | NotADirectoryError):
        return f"{in_the_way} is a file; choose another place"
    if error.errno in _FULL:
        mend = "free some space"
    elif error.errno == errno.EROFS:
        mend = "mount it so that it can be written"
    elif isinstance(error, PermissionError):
        mend = f"mend the permissions of {path.parent}"
    elif not os.path.isdir(path.parent):
        mend = f"make the folder {path.parent} first"
    else:
        mend = f"check the disk and the permissions of {path.parent}"
    return advice.replace("{mend}", mend)


class DamagedError(RunFolderError):
    """A file that can be read does not hold what it should."""


def damaged(path: Path, reason: object, advice: str) -> DamagedError:
    """Return the error for a file that does not hold what it should."""
    return DamagedError(f"{path} is damaged ({reason}); {advice}")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
