"""The folder of one run: made or opened, held against other processes, and filled."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from securedfl.designs import Design
from securedfl.errors import DesignError, RunFolderError
from securedfl.federation.config import TrainConfig
from securedfl.federation.identity import changed_settings, fingerprint
from securedfl.federation.run_folder.checkpoint import Checkpoint, load, save
from securedfl.federation.run_folder.files import CONFIG, DESIGN, FEDERATION, METRICS, RESUME, is_trial, read_config
from securedfl.federation.run_folder.metrics import Row, read_rows, to_line, write_rows, write_table
from securedfl.federation.run_folder.summary import Summary, write_summary
from securedfl.storage import Lines, cannot_write, make_folder, replacing, write_text

ELSEWHERE = "choose another --out"


class RunFolder:
    """One run on disk; get it from `create` or `open`, and close it at the end."""

    def __init__(self, path: Path, config: TrainConfig, design: Design) -> None:
        self.path, self.config, self.design = path, config, design
        self._lock: TextIO | None = None
        self._metrics: Lines | None = None
        self._begun_here, self._before = False, frozenset[Path]()

    @classmethod
    def create(cls, path: Path, config: TrainConfig, design: Design) -> RunFolder:
        """Start a new run; a folder that already holds one is never overwritten."""
        if (path / CONFIG).exists():
            if is_trial(path):
                raise RunFolderError(f"{path} already holds a run of real peers; {ELSEWHERE}, or remove the folder")
            raise RunFolderError(
                f"{path} already holds a run; continue it with `securedfl train --resume {path}`, or {ELSEWHERE}"
            )
        if path.exists() and not path.is_dir():
            raise RunFolderError(f"{path} is a file, not a folder; {ELSEWHERE}")
        folder = cls(path, config, design)
        folder._before, folder._begun_here = frozenset(path.iterdir() if path.exists() else ()), True
        make_folder(path / "checkpoints", ELSEWHERE)
        try:
            folder._take(ELSEWHERE)
            with replacing(path / DESIGN, ELSEWHERE) as temporary:
                design.save(temporary)
            # last: its presence marks a run
            write_text(path / CONFIG, config.to_toml(), ELSEWHERE)
        except BaseException:
            folder.close()
            raise
        return folder

    def abandon(self) -> bool:
        """Take away what this run has written if no round was reached, so that the folder does not block another run.

        Return whether it was taken away. What others put into the folder stays.
        """
        if not self._begun_here or self.rows():
            return False
        self._close_metrics()
        for path in self.path.iterdir():
            if path not in self._before:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        self.close()
        with suppress(OSError):  # it was there before, and holds something
            self.path.rmdir()
        return True

    @classmethod
    def open(cls, path: Path, changes: Mapping[str, Any] | None = None) -> RunFolder:
        """Continue a run, with other values only for settings that change no number, or with more rounds."""
        if not (path / CONFIG).is_file():
            raise RunFolderError(f"there is no run to resume in {path}: it has no {CONFIG}")
        if is_trial(path):
            raise RunFolderError(
                f"the run in {path} was made by `securedfl up`, with real peers, and a simulation cannot continue it; "
                f"start `securedfl peer` for every {path / FEDERATION / 'peer-*.toml'} at the same time; "
                "`securedfl extend` adds rounds"
            )
        saved = read_config(path)
        config = TrainConfig.resolve({**saved.to_dict(), **(changes or {})})
        if config.rounds < saved.rounds:
            raise RunFolderError(
                f"the run in {path} has {saved.rounds} rounds, more than the {config.rounds} asked for; ask for more "
                "to extend it, or leave --rounds away"
            )
        for difference in changed_settings(saved.model_copy(update={"rounds": config.rounds}), config):
            raise RunFolderError(
                f"the run in {path} has {difference}; resume it without that option, or start a new run with "
                "another --out"
            )
        try:
            design = Design.load(path / DESIGN)
        except DesignError as error:
            raise RunFolderError(f"the run in {path} cannot be read: {error}") from None
        if design.n != config.members:
            raise RunFolderError(f"{DESIGN} in {path} is for {design.n} peers, but the run has {config.members}")
        folder = cls(path, config, design)
        folder._take("a run continues only where it can write")
        return folder

    def keep_settings(self) -> None:
        """Write config.toml again: of a run that has been extended."""
        write_text(self.path / CONFIG, self.config.to_toml(), RESUME)

    def holds(self, checkpoint: Checkpoint) -> bool:
        """Tell whether a checkpoint belongs to this run, or to one with fewer rounds and else the same settings."""
        own, shorter = self.identity, range(max(checkpoint.round, 1), self.config.rounds)
        if checkpoint.identity == own:
            return True
        return any(
            checkpoint.identity == {**own, "settings": fingerprint(self.config.model_copy(update={"rounds": rounds}))}
            for rounds in shorter
        )

    @property
    def identity(self) -> dict[str, str]:
        """Hashes of what the numbers of this run depend on; a checkpoint carries them."""
        return {"settings": fingerprint(self.config), "design": self.design.hash}

    def checkpoint(self, method: str) -> Path:
        """Where a method's checkpoint is."""
        return self.path / "checkpoints" / f"{method}.safetensors"

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace a method's checkpoint, after the rows that it stands on are on disk too."""
        if self._metrics is not None:
            self._metrics.sync()
        save(self.checkpoint(checkpoint.method), checkpoint)

    def rows(self) -> list[Row]:
        """Read all whole rows of metrics; a last line cut short by a kill is left out."""
        return read_rows(self.path, Row)

    def keep(self, rows: Iterable[Row]) -> None:
        """Replace the metrics by the rows that a resumed run builds on."""
        self._close_metrics()
        write_rows(self.path, rows)

    def append(self, row: Row) -> None:
        """Add a row; it is with the operating system when this returns."""
        if self._metrics is None:
            self._metrics = Lines(self.path / METRICS, RESUME)
        self._metrics.append(to_line(row), sync=False)

    def finish(self, summary: Summary) -> None:
        """Write metrics.csv and summary.json."""
        self._close_metrics()
        write_table(self.path, self.rows())
        write_summary(self.path, summary)

    def resume_points(self) -> dict[str, Checkpoint]:
        """Load checkpoints and drop the rows after them, which will be computed again."""
        found = {}
        rows = self.rows()
        kept: list[Row] = []
        for method in self.config.methods:
            path = self.checkpoint(method)
            if not path.exists():
                continue
            point = load(path)
            if point.method != method or not self.holds(point):
                raise RunFolderError(
                    f"the checkpoint {path} belongs to other settings or another design than config.toml and "
                    "design.json; put those back, or start a new run with another --out"
                )
            own = {row.round: row for row in rows if row.method == method and row.round <= point.round}
            if sorted(own) != list(range(point.round + 1)):
                raise RunFolderError(
                    f"metrics.jsonl in {self.path} lacks rounds of {method} that the checkpoint has; "
                    f"delete {path} to train this method again from the start"
                )
            # what is told of the last round only was told of the last round before the run was extended
            last = self.config.rounds
            kept += [row if row.round == last else replace(row, all_accuracy=None) for row in own.values()]
            found[method] = point
        if rows or found:
            self.keep(kept)
        return found

    def close(self) -> None:
        """Close files and let go of the folder."""
        self._close_metrics()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _close_metrics(self) -> None:
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            metrics.close()

    def _take(self, advice: str) -> None:
        """Hold the folder, so that two processes never write to one run; the system lets go if we are killed."""
        if sys.platform == "win32":
            return
        import fcntl

        try:
            self._lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise cannot_write(self.path, error, advice) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise RunFolderError(f"another process is working on the run in {self.path}; wait or stop it") from None
