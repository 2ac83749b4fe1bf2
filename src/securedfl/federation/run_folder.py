"""The run folder: everything that a run leaves on disk, and what a resumed run finds there."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from securedfl.designs import Design
from securedfl.errors import ConfigError, DesignError, RunFolderError
from securedfl.federation.config import FREE, TrainConfig, read_toml
from securedfl.federation.files import cannot_write, write_text

Row = dict[str, Any]

TOLD_BY_PEERS = frozenset({"tried", "members", "fetched", "void"})
"""What rows of real peers say besides numbers."""

CONFIG, METRICS = "config.toml", "metrics.jsonl"


class RunFolder:
    """One run on disk; create it with `create` or `open`.

    ===========================  =====================================================
    config.toml                  the resolved settings
    design.json                  who meets whom
    metrics.jsonl, metrics.csv   one row per method and round
    checkpoints/                 one safetensors file per method
    summary.json                 the result
    report.html                  the result, for people
    updates/                     all peers' parameters before averaging, if asked for
    tensorboard/                 events, if asked for
    ===========================  =====================================================
    """

    def __init__(self, path: Path, config: TrainConfig, design: Design) -> None:
        self.path, self.config, self.design = path, config, design
        self._lock: TextIO | None = None
        self._metrics: TextIO | None = None

    @classmethod
    def create(cls, path: Path, config: TrainConfig, design: Design) -> RunFolder:
        """Start a new run; a folder that already holds one is never overwritten."""
        if (path / CONFIG).exists():
            raise RunFolderError(
                f"{path} already holds a run; continue it with --resume {path}, or choose another --out"
            )
        if path.exists() and not path.is_dir():
            raise RunFolderError(f"{path} is a file, not a folder; choose another --out")
        folder = cls(path, config, design)
        try:
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
            folder._take()
            design.save(path / "design.json")
            write_text(
                path / CONFIG, config.to_toml(), "choose another --out"
            )  # last: its presence marks a run
        except (OSError, RunFolderError) as error:
            folder.close()
            if isinstance(error, OSError):
                raise cannot_write(path, error, "choose another --out") from None
            raise
        return folder

    @classmethod
    def open(cls, path: Path, changes: Mapping[str, Any] | None = None) -> RunFolder:
        """Continue a run, with other values only for settings that change no number."""
        if not (path / CONFIG).is_file():
            raise RunFolderError(f"there is no run to resume in {path}: it has no {CONFIG}")
        try:
            values = read_toml(path / CONFIG)
            saved = TrainConfig.resolve(values, where=str(path / CONFIG))
            design = Design.load(path / "design.json")
        except (ConfigError, DesignError) as error:
            raise RunFolderError(f"the run in {path} cannot be resumed: {error}") from None
        config = TrainConfig.resolve({**values, **(changes or {})})
        before, now = saved.to_dict(), config.to_dict()
        for key in sorted(before.keys() | now.keys()):
            if key not in FREE and before.get(key) != now.get(key):
                raise RunFolderError(
                    f"the run in {path} has {key} = {before.get(key)!r}, not {now.get(key)!r}; "
                    "resume it without that option, or start a new run with another --out"
                )
        if design.n != config.peers:
            raise RunFolderError(
                f"design.json in {path} is for {design.n} peers, but the run has {config.peers}"
            )
        folder = cls(path, config, design)
        try:
            folder._take()
        except OSError as error:
            raise cannot_write(path, error, "a run continues only where it can write") from None
        return folder

    def checkpoint(self, method: str) -> Path:
        """Where a method's checkpoint is."""
        return self.path / "checkpoints" / f"{method}.safetensors"

    def update(self, method: str, round: int) -> Path:
        """Where the peers' parameters before the average of a round are, if they are kept."""
        return updates_file(self.path, method, round)

    def rows(self) -> list[Row]:
        """Read all whole rows of metrics; a last line cut short by a kill is left out."""
        return read_rows(self.path)

    def keep(self, rows: Iterable[Row]) -> None:
        """Replace the metrics by the rows that a resumed run builds on."""
        self._close_metrics()
        write_text(self.path / METRICS, "".join(_line(row) for row in rows))

    def append(self, row: Row) -> None:
        """Add a row; it is with the operating system when this returns."""
        try:
            if self._metrics is None:
                self._metrics = (self.path / METRICS).open("a", encoding="utf-8")
            self._metrics.write(_line(row))
            self._metrics.flush()
        except OSError as error:
            raise cannot_write(self.path / METRICS, error) from None

    def finish(self, summary: Mapping[str, Any], columns: Iterable[str]) -> None:
        """Write metrics.csv and summary.json."""
        self._close_metrics()
        text = io.StringIO()
        table = csv.DictWriter(text, list(columns), extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows())
        write_text(self.path / "metrics.csv", text.getvalue())
        write_text(self.path / "summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")

    def close(self) -> None:
        """Close files and let go of the folder."""
        self._close_metrics()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _close_metrics(self) -> None:
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            with suppress(OSError):  # every row was flushed by `append`, which told what went wrong
                metrics.close()

    def _take(self) -> None:
        """Hold the folder, so that two processes never write to one run; the system lets go if we are killed."""
        if sys.platform == "win32":
            return
        import fcntl

        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            self._lock = None
            raise RunFolderError(
                f"another process is working on the run in {self.path}; wait or stop it"
            ) from None


def updates_file(path: Path, method: str, round: int) -> Path:
    """Where a run folder keeps the peers' parameters before the average of a round."""
    return path / "updates" / f"{method}-{round}.safetensors"


def read_rows(path: Path) -> list[Row]:
    """Read the metrics of a run folder; a last line cut short by a kill is left out."""
    file = path / METRICS
    if not file.exists():
        return []
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise RunFolderError(f"cannot read {file}: {error.strerror}; check its permissions") from None
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
            _check(row)
        except ValueError as error:
            if number == len(lines):
                break
            raise RunFolderError(f"line {number} of {file} is damaged: {error}") from None
        rows.append(row)
    return rows


def _check(row: object) -> None:
    if not isinstance(row, dict) or not {"method", "round"} <= row.keys():
        raise ValueError("not a row of metrics")
    if not isinstance(row["method"], str):
        raise ValueError("the method is not a name")
    if isinstance(row["round"], bool) or not isinstance(row["round"], int):
        raise ValueError("the round is not a whole number")
    for key, value in row.items():
        values = value if isinstance(value, list) else [value]
        if key in TOLD_BY_PEERS or key == "method":
            continue
        if any(isinstance(v, bool | str | list | dict) for v in values):
            raise ValueError(f"{key} is not a number")


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False) + "\n"
