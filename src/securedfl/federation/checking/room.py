"""Before training: whether the disk takes what a run writes, so that no peer ends on a full one when others wait."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from securedfl.errors import RunFolderError
from securedfl.network.journal import AGAIN
from securedfl.storage import cannot_write

ROOM = 4 << 20
"""Bytes that a disk must take for log and accounts; what the model needs is known when the app is opened."""
MODELS = 4
"""How many models a run keeps at least: what was trained, two averages, and the model in the site's folder."""


def try_to_write(state: Path) -> None:
    """Write a little where a state folder is, or will be, and take it away again.

    What the system refuses is told as the peer would tell it.
    """
    try:
        # it has no name, so that nothing is left of it whatever happens
        with tempfile.TemporaryFile(dir=_nearest(state)) as file:
            file.write(bytes(ROOM))
    except OSError as error:
        raise cannot_write(state, error, AGAIN) from None


def check_room(state: Path, model: int) -> None:
    """Refuse a disk that is too full for a model of so many bytes; of a run that has begun most is there already."""
    try:
        needed, free = model * (1 if (state / "journal").exists() else MODELS), shutil.disk_usage(_nearest(state)).free
    except OSError as error:
        raise cannot_write(state, error, AGAIN) from None
    if free < needed:
        raise RunFolderError(
            f"{state.parent} has room for {free / 1e6:,.0f} MB, and a run of this model takes {needed / 1e6:,.0f} MB "
            "at least: free some space, or choose another out in peer.toml"
        )


def _nearest(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that is there."""
    return next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
