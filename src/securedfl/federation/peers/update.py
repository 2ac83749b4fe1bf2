"""update.npz, a peer's own checkpoint: what it trained in a round and its optimiser's state, before anything is shared.

A peer that is killed during an average then goes on with the very same parameters. That saves training again, and it is
needed for privacy: if sums were opened before the kill, another sum with other parameters of this peer would tell the
others how the two differ.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.errors import RunFolderError
from securedfl.network.data.averages import Averaged
from securedfl.parameters import Array
from securedfl.states import pack, unpack
from securedfl.storage import OWNER, damaged, read_arrays, write_arrays

log = logging.getLogger("securedfl.peer")

FILE = "update.npz"
AGAIN = "{mend}, then start this peer again"


@dataclass(frozen=True)
class StoredUpdate:
    """What a peer brings to the average of a round, its optimiser's state, and the mean loss of training.

    ``vector`` is just what is averaged, so that a retry brings the very same; ``residual`` and ``clipped`` as in
    `securedfl.federation.bringing.Brought`.
    """

    round: int
    vector: Array
    state: Any
    loss: float | None = None
    residual: Array | None = None
    clipped: int = 0


def save_update(out: Path, update: StoredUpdate) -> None:
    """Keep an update, readable by this site alone; what was there before stays until the new one is on disk."""
    text, arrays = pack(update.state)
    content = {
        "round": np.array(update.round, dtype=np.int64),
        "vector": update.vector,
        "loss": np.array(np.nan if update.loss is None else update.loss, dtype=np.float64),
        "state": np.array(text),
        "clipped": np.array(update.clipped, dtype=np.int64),
        **({} if update.residual is None else {"residual": update.residual}),
        **arrays,
    }
    write_arrays(out / FILE, content, AGAIN, mode=OWNER)


def find_update(out: Path) -> StoredUpdate | None:
    """Return the last update that was kept, if it is whole; a damaged one is lost."""
    try:
        return load_update(out)
    except RunFolderError as error:
        log.warning("%s; the round that it was for goes on without it", error)
        return None


def load_update(out: Path) -> StoredUpdate | None:
    """Return the last update that was kept, None if there is none; a damaged one is a `RunFolderError`."""
    path = out / FILE
    if not path.exists():
        return None
    found = read_arrays(path)
    try:
        round, loss = int(found.pop("round")), float(found.pop("loss"))
        vector, residual, clipped = found.pop("vector"), found.pop("residual", None), int(found.pop("clipped"))
        state = unpack(str(found.pop("state")), found)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, error, "delete it") from None
    return StoredUpdate(round, vector, state, None if np.isnan(loss) else loss, residual, clipped)


def forget_update(out: Path, round: int) -> None:
    """Take away what was averaged before a round, when a run is done and no attempt can want it again.

    The optimiser's state and what stays at home are kept, for a run that is extended.
    """
    kept = find_update(out)
    if kept is None or not kept.vector.size or kept.round >= round:
        return
    if _holds_something(kept.state):
        save_update(out, StoredUpdate(kept.round, np.empty(0, dtype=kept.vector.dtype), kept.state, kept.loss))
    else:
        (out / FILE).unlink(missing_ok=True)


def _holds_something(state: Any) -> bool:
    return any(map(_holds_something, state.values())) if isinstance(state, Mapping) else True


def carried(residual: Array | None, outcome: Averaged, round: int, me: int) -> Array | None:
    """Return what is added in the round after: what was rounded off, if all else of the update was averaged.

    An update that was left out, or lost with a void round, is dropped as a whole: no trace of it comes later.
    """
    counted = outcome.round == round and not outcome.void and me in outcome.members
    return residual if counted else None
