"""Files that are either whole or not there: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from securedfl.errors import RunFolderError

RESUME = "free some space, then continue with --resume"
"""What to do about a disk that is full in the middle of a run."""


@contextmanager
def replacing(path: Path, advice: str = RESUME) -> Iterator[Path]:
    """Give a temporary path to write to; on success it is flushed to disk and takes the place of ``path``.

    What the system refuses is a `RunFolderError` that ends with the advice.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)  # the rename itself
    except OSError as error:
        raise cannot_write(path, error, advice) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, advice: str = RESUME) -> None:
    """Replace a text file."""
    with replacing(path, advice) as temporary:
        temporary.write_text(text, encoding="utf-8")


def cannot_write(path: Path, error: OSError, advice: str = RESUME) -> RunFolderError:
    """Return the error that tells which file the system refused, why, and what to do."""
    return RunFolderError(f"cannot write {path}: {error.strerror or error}; {advice}")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
