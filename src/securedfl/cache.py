"""Arrays kept in the user's cache folder; a damaged file is noticed, so that its content can be made again."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

_DAMAGED = (OSError, EOFError, ValueError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What reading a file raises that is missing, cut short or changed."""


def folder() -> Path:
    """Return ``$XDG_CACHE_HOME/securedfl`` or ``~/.cache/securedfl``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "securedfl"


def recall(path: Path) -> Arrays | None:
    """Return the arrays of a file, or None if there is none that is intact."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except _DAMAGED:
        return None
    # what does not begin as an array is returned as bytes
    return arrays if all(isinstance(array, np.ndarray) for array in arrays.values()) else None


def remember(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Store arrays; a reader sees a whole file or none. A folder that cannot be written is no error."""
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(temporary, path)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
