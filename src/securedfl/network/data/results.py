"""Results of attempts: kept safe before the log confirms them, and handed to whoever missed them."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from securedfl.errors import RunFolderError
from securedfl.network.core.messages import Result
from securedfl.network.journal import AGAIN
from securedfl.protocols.steps import Array
from securedfl.storage import OWNER, make_folder, replacing

PIECE = 1 << 20
"""Bytes of a result that travel in one message."""


def file_of(folder: Path, result: Result) -> Path:
    """Return where a result is kept."""
    return folder / f"{result.round}-{result.attempt}-{result.digest.hex()}.bin"


class Results:
    """The results that this peer holds, a file each. May be used from any thread.

    Parameters
    ----------
    folder
        Where they are kept.
    size, dtype
        Of the vectors.
    """

    def __init__(self, folder: Path, size: int, dtype: str) -> None:
        make_folder(folder, AGAIN, private=True)
        self._folder, self._spare, self._size = folder, folder / "spare", size
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._lock, self._storing = threading.Lock(), threading.Lock()
        # the last vector, until somebody takes it; then only as long as anybody has it
        self._kept: Array | None = None
        self._last: tuple[Result, weakref.ref[Array]] | None = None
        # whoever was killed here left a file half written, as long as a model
        for torn in folder.glob(".*.tmp"):
            torn.unlink(missing_ok=True)
        self._held = set(self._find())

    @property
    def nbytes(self) -> int:
        """Bytes of a result."""
        return self._size * self._dtype.itemsize

    @property
    def held(self) -> list[Result]:
        """All results that are stored, in order."""
        with self._lock:
            return sorted(self._held)

    def store(self, round: int, attempt: int, vector: Array) -> Result:
        """Keep a result safe; it is on disk when this returns."""
        vector.flags.writeable = False
        data = _bytes(np.ascontiguousarray(vector, dtype=self._dtype))
        result = Result(round, attempt, hashlib.sha256(data).digest())
        # it may be computed and fetched at the same time
        with (
            self._storing,
            replacing(self._path(result), AGAIN, mode=OWNER, spare=self._spare) as temporary,
            temporary.open("r+b") as file,
        ):
            file.write(data)
            file.truncate()
        with self._lock:
            self._held.add(result)
            self._kept, self._last = vector, (result, weakref.ref(vector))
        return result

    def vector_of(self, data: memoryview) -> Array:
        """Return the vector that bytes from another peer hold."""
        return np.frombuffer(data, dtype=self._dtype)

    def keep_from(self, round: int) -> None:
        """Forget results of earlier rounds."""
        for result in self.held:
            if result.round < round:
                self.drop(result)

    def drop(self, result: Result) -> None:
        """Forget a result; the next one is written over its file."""
        with self._lock:
            self._held.discard(result)
            if self._last is not None and self._last[0] == result:
                self._kept = self._last = None
        with suppress(OSError):
            self._path(result).replace(self._spare)

    def load(self, round: int, digest: bytes) -> Array:
        """Return a stored result; `RunFolderError` if it is not here, or was damaged and is now gone."""
        with self._lock:
            found = next((r for r in self._held if (r.round, r.digest) == (round, digest)), None)
            if found is None:
                raise RunFolderError(f"there is no result of round {round} here; start this peer again to fetch it")
            if self._last is not None and self._last[0] == found:
                self._kept, vector = None, self._last[1]()
                if vector is not None:
                    return vector
        vector = self._read(found)
        if vector is None:
            with self._lock:
                self._held.discard(found)
            raise RunFolderError(
                f"{self._path(found)} was damaged and is removed; start this peer again to fetch it from others"
            )
        with self._lock:
            self._last = (found, weakref.ref(vector))
        return vector

    def pieces(self, round: int, digest: bytes) -> Iterator[memoryview]:
        """Give a result away, piece by piece; nothing if it is not here."""
        try:
            data = _bytes(np.ascontiguousarray(self.load(round, digest), dtype=self._dtype))
        except RunFolderError:
            return
        for at in range(0, len(data), PIECE):
            yield data[at : at + PIECE]

    def _path(self, result: Result) -> Path:
        return file_of(self._folder, result)

    def _find(self) -> Iterator[Result]:
        """Find what is whole."""
        for path in self._folder.glob("*.bin"):
            try:
                round, attempt, digest = path.stem.split("-")
                result = Result(int(round), int(attempt), bytes.fromhex(digest))
            except ValueError:
                continue
            if self._read(result) is not None:
                yield result

    def _read(self, result: Result) -> Array | None:
        """Return what is stored; what is damaged is removed, because others hold it."""
        try:
            vector: Array = np.fromfile(self._path(result), dtype=self._dtype)
        except OSError:
            return None
        if vector.shape != (self._size,) or hashlib.sha256(_bytes(vector)).digest() != result.digest:
            self._path(result).unlink(missing_ok=True)
            return None
        vector.flags.writeable = False
        return vector


def _bytes(vector: Array) -> memoryview:
    return vector.data.cast("B") if vector.size else memoryview(b"")
