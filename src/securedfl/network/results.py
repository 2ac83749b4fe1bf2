"""Results of rounds: kept safe before they are confirmed, applied only then, and handed to whoever missed them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from securedfl import storage
from securedfl.errors import RunFolderError
from securedfl.network.wire.frames import FrameError
from securedfl.protocols.steps import Array

PIECE = 1 << 20
_HEADER_LIMIT = 4096
AGAIN = "free some space, then start this peer again"


@dataclass(frozen=True)
class Result:
    """One round's average: in memory, or in a file if results are durable."""

    round: int
    epoch: int
    digest: str
    vector: Array | None = None
    path: Path | None = None

    def header(self) -> bytes:
        """Describe the result, for a file or a stream."""
        text = {"round": self.round, "epoch": self.epoch, "digest": self.digest}
        return json.dumps(text).encode() + b"\n"


class Results:
    """The last confirmed result and, for a while, the one that waits for confirmation.

    Parameters
    ----------
    folder
        Where they are kept; None keeps them in memory.
    size, dtype
        Of the vectors; anything else is refused before it is read.
    """

    def __init__(self, folder: Path | None, size: int, dtype: str) -> None:
        self._folder, self._size = folder, size
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._lock = threading.Lock()
        self._pending = self._find("pending.bin")
        self._confirmed = self._find("result.bin")

    @property
    def round(self) -> int:
        """The last confirmed round, -1 for none."""
        return self._confirmed.round if self._confirmed else -1

    @property
    def pending(self) -> Result | None:
        """The result that waits for confirmation."""
        return self._pending

    def stage(self, round: int, epoch: int, vector: Array) -> str:
        """Keep a result safe and return its digest; it is not applied yet."""
        vector.flags.writeable = False
        result = Result(round, epoch, _digest(vector), vector)
        if self._folder is not None:
            result = self._save("pending.bin", result, vector)
        with self._lock:
            self._pending = result
        return result.digest

    def holds(self, round: int, digest: str) -> bool:
        """Tell whether this peer has that result, confirmed or not."""
        with self._lock:
            return any(
                result is not None and (result.round, result.digest) == (round, digest)
                for result in (self._pending, self._confirmed)
            )

    def confirm(self) -> Array:
        """Make the pending result the confirmed one and return it."""
        with self._lock:
            result = self._pending
            if result is None:
                raise RuntimeError("there is no result to confirm")
            if self._folder is not None:
                (self._folder / "pending.bin").replace(self._folder / "result.bin")
                result = Result(result.round, result.epoch, result.digest, None, self._folder / "result.bin")
            self._pending, vector = None, self._pending.vector if self._pending else None
            self._confirmed = result
        return vector if vector is not None else self.load()

    def discard(self) -> None:
        """Forget the pending result, which was abandoned."""
        with self._lock:
            self._pending = None
        if self._folder is not None:
            (self._folder / "pending.bin").unlink(missing_ok=True)

    def void(self, round: int) -> Array:
        """Let a void round end with what the round before gave; return that."""
        vector = self.load()
        self.stage(round, 0, vector)
        return self.confirm()

    def load(self) -> Array:
        """Return the confirmed result."""
        if self._confirmed is None:
            raise RunFolderError("there is no result of an earlier round")
        if self._confirmed.vector is not None:
            return self._confirmed.vector
        return self._read(self._confirmed)

    def send(self, round: int = -1, epoch: int = 0) -> Iterator[bytes]:
        """Give the confirmed result away, piece by piece; or the one of ``round`` that waits for confirmation."""
        with self._lock:
            pending = self._pending
            waiting = pending is not None and (pending.round, pending.epoch) == (round, epoch)
            result = pending if waiting else self._confirmed
        if result is None:
            raise RunFolderError("this peer has no result yet")
        vector = result.vector if result.vector is not None else self._read(result)
        yield result.header()
        data = _bytes(np.ascontiguousarray(vector, dtype=self._dtype))
        for at in range(0, len(data), PIECE):
            yield bytes(data[at : at + PIECE])

    def receive(self, pieces: Iterator[bytes], round: int, digest: str) -> tuple[int, Array]:
        """Take a result from another peer, check it, and confirm it; ``digest`` is what was decided for ``round``."""
        result, vector = self._read_stream(pieces)
        if result.round < round or (digest and result.round == round and result.digest != digest):
            raise FrameError("a model of another round or with another digest than was decided")
        self.stage(result.round, result.epoch, vector)
        return result.round, self.confirm()

    def copy(self, pieces: Iterator[bytes], round: int, epoch: int, digest: str) -> Array:
        """Take a result that waits for confirmation from another peer and check it; it is not kept yet."""
        result, vector = self._read_stream(pieces)
        if (result.round, result.epoch, result.digest) != (round, epoch, digest):
            raise FrameError("a result of another round or with another digest than was announced")
        return vector

    def _read_stream(self, pieces: Iterator[bytes]) -> tuple[Result, Array]:
        """Read a result that another peer gives away; its length is known before anything is allocated."""
        try:
            header = next(pieces, b"")
            if len(header) > _HEADER_LIMIT:
                raise ValueError
            about = json.loads(header)
            result = Result(int(about["round"]), int(about["epoch"]), str(about["digest"]))
        except (ValueError, KeyError, TypeError):
            raise FrameError("a model with an unreadable header") from None
        vector = np.empty(self._size, dtype=self._dtype)
        data, at = _bytes(vector), 0
        for piece in pieces:
            if at + len(piece) > len(data):
                raise FrameError("a model that is longer than agreed")
            data[at : at + len(piece)] = piece
            at += len(piece)
        if at != len(data) or _digest(vector) != result.digest:
            raise FrameError("a model that is damaged or cut short")
        return result, vector

    def _save(self, name: str, result: Result, vector: Array) -> Result:
        assert self._folder is not None  # noqa: S101 - for the type checker
        path = self._folder / name
        with storage.replacing(path, AGAIN) as temporary, temporary.open("wb") as file:
            file.write(result.header())
            file.write(_bytes(np.ascontiguousarray(vector, dtype=self._dtype)))
        return Result(result.round, result.epoch, result.digest, vector, path)

    def _find(self, name: str) -> Result | None:
        if self._folder is None or not (self._folder / name).exists():
            return None
        path = self._folder / name
        try:
            with path.open("rb") as file:
                about = json.loads(file.readline(_HEADER_LIMIT))
            return Result(int(about["round"]), int(about["epoch"]), str(about["digest"]), None, path)
        except (OSError, ValueError, KeyError, TypeError):
            raise RunFolderError(f"{path} is damaged; delete it, the other peers have the result") from None

    def _read(self, result: Result) -> Array:
        path = result.path
        try:
            if path is None:
                raise ValueError("no file")
            with path.open("rb") as file:
                file.readline(_HEADER_LIMIT)
                vector = np.fromfile(file, dtype=self._dtype)
            if vector.shape != (self._size,) or _digest(vector) != result.digest:
                raise ValueError("the digest does not match")
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path} is damaged ({error}); delete it, the other peers have it") from None
        vector.flags.writeable = False
        return vector


def _digest(vector: Array) -> str:
    return hashlib.sha256(_bytes(np.ascontiguousarray(vector))).hexdigest()


def _bytes(vector: Array) -> memoryview:
    return vector.data.cast("B")
