"""What a run shows while it trains: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import METHODS
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.metrics import Row
from securedfl.reporting.units import percent


class _OnConsole(Observer):
    """Says on a console what it is told."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def told(self, text: str) -> None:
        """Say it, in a line of its own."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LineProgress(_OnConsole):
    """One line per round, for logs."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._config: TrainConfig | None = None
        self._width = 0

    def preparing(self, text: str) -> None:
        """Say what takes its time."""
        self.told(text)

    def started(self, folder: Path, config: TrainConfig, workers: int) -> None:
        """Say what is trained and where it goes."""
        self._config = config
        self._width = max(len(METHODS[method].label) for method in config.methods)
        self.told(headline(folder, config, workers))

    def method_started(self, method: str, after: int | None) -> None:
        """Say so only if a method goes on where it was stopped."""
        if after is not None:
            self.told(f"{METHODS[method].label}: continuing after round {after}")

    def round_finished(self, row: Row) -> None:
        """Print the round."""
        rounds = self._config.rounds if self._config else row.round
        error = "" if row.error_mse is None else f"  error {row.error_mse:.1e}"
        spent = "" if row.epsilon is None else f"  epsilon {row.epsilon:.3g}"
        accuracy, loss = _scored(row)
        # an app need not score anything
        scored = "" if math.isnan(accuracy) else f"  accuracy {accuracy:.4f}  loss {loss:.4f}"
        self.told(
            f"{METHODS[row.method].label:<{self._width}} round {row.round:>{len(str(rounds))}}/{rounds}{scored}"
            f"{error}{spent}  {row.train_seconds + row.average_seconds:.2f} s"
        )


class _Bars(Progress):
    """Bars with a note above them."""

    note = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.note:
            yield Text(self.note)
        yield from super().get_renderables()


class LiveProgress(_OnConsole):
    """One bar per method: round, peers that have trained in it, accuracy, time left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.bars = _Bars(
            TextColumn("[bold]{task.description}", table_column=_fixed()),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("round {task.fields[round]}/{task.fields[rounds]}", table_column=_fixed()),
            TextColumn("peer {task.fields[trained]}/{task.fields[peers]}", table_column=_fixed()),
            TextColumn("{task.fields[accuracy]}{task.fields[spent]}", table_column=_fixed()),
            TimeElapsedColumn(table_column=_fixed()),
            TextColumn("left", table_column=_fixed()),
            TimeRemainingColumn(table_column=_fixed()),
            expand=True,
            console=console,
            refresh_per_second=4,  # more would take time from training
        )
        self._tasks: dict[str, TaskID] = {}
        self._peers = self._trained = 0
        self._task = TaskID(0)

    def preparing(self, text: str) -> None:
        """Show what takes its time in a line of its own, until training begins."""
        self.bars.note = text

    def started(self, folder: Path, config: TrainConfig, workers: int) -> None:
        """Show all methods, waiting."""
        self.told(headline(folder, config, workers))
        self.bars.note = ""
        self._peers = config.members
        for method in config.methods:
            self._tasks[method] = self.bars.add_task(
                METHODS[method].label,
                start=False,
                total=config.rounds * config.members,
                round=0,
                rounds=config.rounds,
                trained=0,
                peers=config.members,
                accuracy="-",
                spent="",
            )

    def method_started(self, method: str, after: int | None) -> None:
        """Start the method's clock."""
        self._task, self._trained = self._tasks[method], (after or 0) * self._peers
        self.bars.start_task(self._task)
        self.bars.update(self._task, completed=self._trained, round=after or 0)

    def peers_trained(self, count: int) -> None:
        """Move the bar by a peer."""
        self.bars.update(self._task, completed=self._trained + count, trained=count)

    def round_finished(self, row: Row) -> None:
        """Show the accuracy reached."""
        self._trained = row.round * self._peers
        spent = "" if row.epsilon is None else f" epsilon {row.epsilon:.3g}"
        self.bars.update(self._task, round=row.round, accuracy=percent(_scored(row)[0]), spent=spent)

    def method_finished(self, method: str) -> None:
        """Stop the method's clock."""
        self.bars.stop_task(self._tasks[method])


@contextmanager
def progress_on(console: Console) -> Iterator[LineProgress | LiveProgress]:
    """Give what suits the console."""
    if not console.is_terminal:
        yield LineProgress(console)
        return
    progress = LiveProgress(console)
    with progress.bars:
        yield progress


def _fixed() -> Column:
    """Return a column that is never cut: on a narrow terminal the bar gives way."""
    return Column(no_wrap=True, overflow="ignore")


def headline(folder: Path, config: TrainConfig, workers: int) -> str:
    """One line that says what is about to happen."""
    processes = "one process" if workers == 1 else f"{workers} processes"
    rounds = "1 round" if config.rounds == 1 else f"{config.rounds} rounds"
    return f"{config.subject}: {config.peers} peers, {rounds}, seed {config.seed}, {processes}; run folder {folder}"


def _scored(row: Row) -> tuple[float, float]:
    """Return accuracy and loss on the peers' own test data; where nobody has any, on the common test set."""
    if math.isfinite(row.accuracy) or row.common_accuracy is None or row.common_loss is None:
        return row.accuracy, row.loss
    return row.common_accuracy, row.common_loss
