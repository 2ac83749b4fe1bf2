"""correct/METHOD.npz: which test predictions were right in a method's best and last round, of simulations only.

Methods are scored on the same test samples, so only this tells how sure a difference between two of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from securedfl.federation.run_folder.files import RESUME
from securedfl.federation.run_folder.metrics import Row, finite
from securedfl.learning.training.task import ScoredOn
from securedfl.parameters import Array
from securedfl.storage import damaged, make_folder, read_arrays, write_arrays

Which = Literal["best", "final"]

C = TypeVar("C")
"""Whatever is saved after it."""


@dataclass(frozen=True)
class Correct:
    """Which predictions of the model after a ``round`` were ``right``, of the samples that it was ``tested`` on."""

    round: int
    tested: ScoredOn
    right: Array


def correct_file(folder: Path, method: str) -> Path:
    """Where a run folder keeps which predictions of a method were right."""
    return folder / "correct" / f"{method}.npz"


def read_correct(folder: Path, method: str, which: Which, round: int) -> Correct | None:
    """Return what a method's model got right; None if that was not kept for this round."""
    path = correct_file(folder, method)
    if not path.exists():
        return None
    found = read_arrays(path)
    try:
        if int(found[f"{which}_round"]) != round:
            # a run that was stopped after it was written, and has not come so far again
            return None
        tested = ScoredOn(found["samples"], found["users"])
        count = int(found["predictions"])
        right = np.unpackbits(found[which], count=count).astype(bool)
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(path, error, "delete it; the run keeps its numbers, without intervals") from None
    if count % max(len(tested.samples), 1) or len(tested.samples) != len(tested.users):
        raise damaged(path, "its lengths do not fit each other", "delete it")
    return Correct(round, tested, right)


class CorrectKeeper:
    """Keeps what the best and the last model of a method got right; a run that goes on builds on what is there.

    Parameters
    ----------
    folder, method
        Of the run.
    tested
        The test samples of all peers, in the order of the peers; None keeps nothing.
    before
        The rows that the run goes on from.
    """

    def __init__(self, folder: Path, method: str, tested: ScoredOn | None, before: Sequence[Row] = ()) -> None:
        self._folder, self._method, self._tested = folder, method, tested
        self._kept: dict[Which, Correct] = {}
        self._best = max((row.accuracy for row in before if finite(row.accuracy) is not None), default=-1.0)
        for row in before:
            if row.accuracy == self._best:
                known = read_correct(folder, method, "best", row.round)
                self._kept |= {} if known is None else {"best": known}
                break

    def see(self, row: Row, right: Sequence[Array] | None) -> None:
        """Take note of a round: of each peer, which predictions on its own test data were right."""
        if self._tested is None or right is None:
            return
        found = Correct(row.round, self._tested, np.concatenate(right))
        self._kept["final"] = found
        if row.accuracy > self._best:
            self._best, self._kept["best"] = row.accuracy, found

    def before(self, save: Callable[[C], None]) -> Callable[[C], None]:
        """Return the same that first writes what was kept, so that a run that goes on finds its best model.

        It may run in another thread; what is newer than the checkpoint does no harm, as a run that goes on finds it
        again.
        """

        def write_and_save(checkpoint: C) -> None:
            kept = dict(self._kept)
            if kept:
                make_folder(self._folder / "correct", RESUME)
                write_arrays(correct_file(self._folder, self._method), _arrays(kept), RESUME)
            save(checkpoint)

        return write_and_save


def _arrays(kept: Mapping[Which, Correct]) -> dict[str, Array]:
    some = next(iter(kept.values()))
    found = {"samples": some.tested.samples, "users": some.tested.users, "predictions": np.asarray(len(some.right))}
    for which, model in sorted(kept.items()):
        found |= {which: np.packbits(model.right), f"{which}_round": np.asarray(model.round)}
    return found
