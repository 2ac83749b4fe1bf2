"""Large designs, kept in the user's cache folder; a damaged file is noticed and built again."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

from securedfl.designs.design import Design

FROM_PEERS = 2000
"""Smaller designs are built faster than they are read and checked."""

VERSION = 2
"""Part of the file name: raise it when a construction changes what it returns."""

_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a file raises that is missing, cut short or changed (`DesignError` is a `ValueError`)."""


def folder() -> Path:
    """Return ``$XDG_CACHE_HOME/securedfl`` or ``~/.cache/securedfl``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "securedfl"


def recall(n: int, s: int, seed: int) -> Design | None:
    """Return the stored design, or None if there is none that is intact."""
    try:
        with _path(n, s, seed).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            design = Design(stored["labels"], method=str(stored["method"]))
            expected = str(stored["hash"])
        if design.hash != expected or design.n != n:
            return None
        design.verify()
    except _DAMAGED:
        return None
    return design


def remember(design: Design, s: int, seed: int) -> None:
    """Store a verified design; a reader sees a whole file or none. A folder that cannot be written is no error."""
    path = _path(design.n, s, seed)
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            np.savez(file, labels=design.labels, method=np.array(design.method), hash=np.array(design.hash))
        os.replace(temporary, path)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _path(n: int, s: int, seed: int) -> Path:
    return folder() / f"design-v{VERSION}-{n}-{s}-{seed}.npz"
