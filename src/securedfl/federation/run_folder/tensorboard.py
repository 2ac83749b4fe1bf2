"""TensorBoard events of a run, an optional extra."""

from __future__ import annotations

from pathlib import Path

from securedfl.errors import needing
from securedfl.federation.run_folder.files import RESUME
from securedfl.federation.run_folder.metrics import COLUMNS, Row
from securedfl.storage import cannot_write


class Events:
    """Writes a row's numbers to ``tensorboard/METHOD``; hides what an interrupted run wrote too much."""

    def __init__(self, path: Path, method: str, first_round: int) -> None:
        with needing("tensorboard = true", "tensorboard"):
            from torch.utils.tensorboard.writer import SummaryWriter
        self._path = path / "tensorboard" / method
        try:
            self._writer = SummaryWriter(str(self._path), purge_step=first_round)
        except OSError as error:
            raise cannot_write(self._path, error, RESUME) from None

    def add(self, row: Row) -> None:
        """Write one row."""
        try:
            for name in COLUMNS[2:]:
                if getattr(row, name) is not None:
                    self._writer.add_scalar(name, getattr(row, name), row.round)
        except OSError as error:
            raise cannot_write(self._path, error, RESUME) from None

    def close(self) -> None:
        """Flush and close."""
        try:
            self._writer.close()
        except OSError as error:
            raise cannot_write(self._path, error, RESUME) from None
