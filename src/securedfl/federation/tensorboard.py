"""TensorBoard events of a run, an optional extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from securedfl.errors import MissingDependencyError
from securedfl.federation.files import cannot_write

SCALARS = (
    "accuracy",
    "loss",
    "train_loss",
    "error_mse",
    "bytes_per_peer",
    "train_seconds",
    "average_seconds",
)


class Events:
    """Writes a row's numbers to ``tensorboard/METHOD``; hides what an interrupted run wrote too much."""

    def __init__(self, path: Path, method: str, first_round: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise MissingDependencyError(
                "tensorboard = true needs TensorBoard; install it with: pip install 'securedfl[tensorboard]'"
            ) from None
        self._path = path / "tensorboard" / method
        try:
            self._writer = SummaryWriter(str(self._path), purge_step=first_round)
        except OSError as error:
            raise cannot_write(self._path, error) from None

    def add(self, row: dict[str, Any]) -> None:
        """Write one row."""
        try:
            for name in SCALARS:
                if row[name] is not None:
                    self._writer.add_scalar(name, row[name], row["round"])
        except OSError as error:
            raise cannot_write(self._path, error) from None

    def close(self) -> None:
        """Flush and close."""
        try:
            self._writer.close()
        except OSError as error:
            raise cannot_write(self._path, error) from None
