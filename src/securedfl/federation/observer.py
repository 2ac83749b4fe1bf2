"""Being told what happens in a run: the base of progress displays."""

from __future__ import annotations

from pathlib import Path

from securedfl.federation.config import TrainConfig
from securedfl.federation.run_folder.metrics import Row


class Observer:
    """Override what you want to be told; an exception from any of it stops the run as Ctrl-C does.

    Attributes
    ----------
    folder
        The run folder, from the moment at which this run holds it; what is in it is usable however the run ends.
    """

    folder: Path | None = None

    def preparing(self, text: str) -> None:
        """Hear what takes its time before training begins, such as decoding a data set for the first time."""

    def told(self, text: str) -> None:
        """Hear, at any time, a line that the user should know, such as that a lost worker was started again."""

    def started(self, folder: Path, config: TrainConfig, workers: int) -> None:
        """Hear that training begins."""

    def method_started(self, method: str, after: int | None) -> None:
        """Hear that a method begins, or goes on after a round."""

    def peers_trained(self, count: int) -> None:
        """Hear that so many peers have finished their update of this round."""

    def round_finished(self, row: Row) -> None:
        """Hear that a round is done."""

    def method_finished(self, method: str) -> None:
        """Hear that a method is done."""
