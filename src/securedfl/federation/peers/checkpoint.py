"""A peer's own checkpoint: what it trained in a round and its optimiser's state, on disk before anything is shared.

A peer that is killed during an average then goes on with the very same parameters. That saves training again, and it is
needed for privacy: if sums were opened before the kill, another sum with other parameters of this peer would tell the
others how the two differ.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.errors import RunFolderError
from securedfl.federation.files import replacing
from securedfl.federation.state_tree import pack, unpack
from securedfl.protocols.steps import Array

FILE = "update.npz"
AGAIN = "free some space, then start this peer again"


@dataclass(frozen=True)
class Update:
    """What a peer trained in a round, and its optimiser's state after it."""

    round: int
    vector: Array
    state: Any
    loss: float | None = None


def save_update(out: Path, update: Update) -> None:
    """Keep an update; what was there before stays until the new one is on disk."""
    text, arrays = pack(update.state)
    content: dict[str, Any] = {
        "round": np.int64(update.round),
        "vector": update.vector,
        "loss": np.float64(np.nan if update.loss is None else update.loss),
        "state": np.array(text),
        **arrays,
    }
    with replacing(out / FILE, AGAIN) as temporary, temporary.open("wb") as file:
        temporary.chmod(0o600)  # the parameters of this site alone
        np.savez(file, **content)


def load_update(out: Path) -> Update | None:
    """Return the last update that was kept, None if there is none; a damaged one is a `RunFolderError`."""
    path = out / FILE
    if not path.exists():
        return None
    try:
        with path.open("rb") as content, np.load(content, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
        round, vector = int(found.pop("round")), found.pop("vector")
        loss, text = float(found.pop("loss")), str(found.pop("state"))
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise RunFolderError(f"the checkpoint {path} is damaged ({error}); delete it") from None
    return Update(round, vector, unpack(text, found), None if np.isnan(loss) else loss)
