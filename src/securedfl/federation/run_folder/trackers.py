"""Where else the numbers of a run may go: TensorBoard, Weights & Biases and MLflow, each an optional extra.

They get the rows of metrics and the settings: numbers pooled over all peers, and never a parameter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from securedfl.errors import RunFolderError, needing
from securedfl.federation.config import TrainConfig
from securedfl.federation.run_folder.files import RESUME
from securedfl.federation.run_folder.metrics import COLUMNS, Row, finite
from securedfl.storage import cannot_write, make_folder, write_text


@contextmanager
def trackers(folder: Path, config: TrainConfig, method: str, first_round: int) -> Iterator[Callable[[Row], None]]:
    """Give a function that tells all trackers that the settings ask for about a row.

    Parameters
    ----------
    folder, config, method
        The run.
    first_round
        That is told; later ones that an interrupted run has told already are replaced where the tracker can do that.
    """
    found: list[Tracker] = []

    def tell(row: Row) -> None:
        for tracker in found:
            tracker.add(row)

    with ExitStack() as stack:
        for name, make in TRACKERS.items():
            if getattr(config, name):
                found.append(stack.enter_context(closing(make(folder, config, method, first_round))))
        yield tell


class TensorBoard:
    """Writes a row's numbers to ``tensorboard/METHOD``; hides what an interrupted run wrote too much."""

    def __init__(self, folder: Path, _config: TrainConfig, method: str, first_round: int) -> None:
        with needing("tensorboard = true", "tensorboard"):
            from torch.utils.tensorboard.writer import SummaryWriter
        self._path = folder / "tensorboard" / method
        with _writing(self._path):
            self._writer = SummaryWriter(str(self._path), purge_step=first_round)

    def add(self, row: Row) -> None:
        """Write one row."""
        with _writing(self._path):
            for name, value in numbers(row).items():
                self._writer.add_scalar(name, value, row.round)

    def close(self) -> None:
        """Flush and close."""
        with _writing(self._path):
            self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases per method, in one group; a resumed run goes on with it."""

    def __init__(self, folder: Path, config: TrainConfig, method: str, _first_round: int) -> None:
        with needing("wandb = true", "wandb"):
            import wandb
        place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        with _told("Weights & Biases"):
            self._run = wandb.init(
                project="securedfl",
                group=folder.name,
                name=f"{folder.name} {method}",
                id=f"{place}-{method}",
                resume="allow",
                dir=str(folder),
                config=config.to_dict(),
            )

    def add(self, row: Row) -> None:
        """Tell one row."""
        with _told("Weights & Biases"):
            self._run.log(numbers(row), step=row.round)

    def close(self) -> None:
        """Finish the run."""
        with _told("Weights & Biases"):
            self._run.finish()


class MLflow:
    """A run of MLflow per method, at the tracking server that MLflow is set to; a resumed run goes on with it."""

    def __init__(self, folder: Path, config: TrainConfig, method: str, first_round: int) -> None:
        with needing("mlflow = true", "mlflow"):
            import mlflow
        known = folder / "mlflow" / f"{method}.txt"
        with _told("MLflow"):
            self._client = mlflow.MlflowClient()
            if first_round > 1 and known.exists():
                self._id = known.read_text(encoding="utf-8").strip()
                return
            found = self._client.get_experiment_by_name("securedfl")
            experiment = self._client.create_experiment("securedfl") if found is None else found.experiment_id
            run = self._client.create_run(experiment, run_name=f"{folder.name} {method}")
            self._id = run.info.run_id
            for key, value in {"method": method, **config.to_dict()}.items():
                self._client.log_param(self._id, key, value)
        make_folder(known.parent, RESUME)
        write_text(known, self._id, RESUME)

    def add(self, row: Row) -> None:
        """Tell one row."""
        with _told("MLflow"):
            for name, value in numbers(row).items():
                self._client.log_metric(self._id, name, value, step=row.round)

    def close(self) -> None:
        """Finish the run."""
        with _told("MLflow"):
            self._client.set_terminated(self._id)


Tracker = TensorBoard | WeightsAndBiases | MLflow

TRACKERS: Mapping[str, Callable[[Path, TrainConfig, str, int], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
"""All trackers by the setting that asks for them."""


def numbers(row: Row) -> dict[str, float]:
    """Return the numbers of a row that are known and finite."""
    found: dict[str, Any] = {name: finite(getattr(row, name)) for name in COLUMNS[2:]}
    return {name: float(value) for name, value in found.items() if value is not None}


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error, RESUME) from None


@contextmanager
def _told(who: str) -> Iterator[None]:
    """Turn whatever a tracker raises into an error that says how to go on."""
    try:
        yield
    except Exception as error:
        raise RunFolderError(
            f"{who} failed: {error}; mend it, or continue the run without it (--resume with --no-wandb or --no-mlflow)"
        ) from error
