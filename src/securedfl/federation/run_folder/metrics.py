"""metrics.jsonl and metrics.csv: one row per method and round of a run, or per round of a real peer."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import msgspec
import numpy as np

from securedfl.federation.run_folder.files import METRICS, RESUME, TABLE, damaged
from securedfl.learning.training.task import Score
from securedfl.storage import read_lines, write_text

RoundNumber = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class Tried:
    """One attempt of real peers at an average: when, by whom, and whether sums of it may have been seen."""

    epoch: int
    attempt: int
    members: tuple[int, ...]
    opened: bool


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a method had reached after a round; round 0 is the initial average.

    Attributes
    ----------
    accuracy, loss
        Pooled over all peers' own test data. What is not finite, of a model that fails, is null on disk.
    peer_accuracy, peer_loss
        Of each peer on its own test data.
    train_loss
        Mean over all training samples.
    error_mse, error_max
        How far the average is from the true mean, which only a simulation knows.
    bytes_per_peer
        Sent by a peer, on average.
    clipped
        How many values of all peers were beyond the range and were cut, if that is allowed.
    epsilon
        Of differential privacy, after this round; see `securedfl.privacy.budget`.
    tried
        All attempts at the average, if real peers made it.
    """

    method: str
    round: RoundNumber
    accuracy: float = math.nan
    loss: float = math.nan
    peer_accuracy: tuple[float, ...] = ()
    peer_loss: tuple[float, ...] = ()
    train_loss: float | None = None
    error_mse: float | None = None
    error_max: float | None = None
    bytes_per_peer: float = 0.0
    clipped: int | None = None
    train_seconds: float = 0.0
    average_seconds: float = 0.0
    epsilon: float | None = None
    tried: tuple[Tried, ...] | None = None

    @classmethod
    def pooled(cls, method: str, round: int, scores: Sequence[Score], losses: Sequence[tuple[float, int]]) -> Self:
        """Pool what peers reached: each one's score, and its training loss with its number of samples."""
        count = sum(score.count for score in scores)
        means, samples = zip(*losses, strict=True) if losses else ((), ())
        return cls(
            method=method,
            round=round,
            accuracy=sum(score.correct for score in scores) / count,
            loss=sum(score.loss for score in scores) / count,
            peer_accuracy=tuple(score.correct / score.count for score in scores),
            peer_loss=tuple(score.loss / score.count for score in scores),
            train_loss=float(np.average(means, weights=samples)) if losses else None,
        )


@dataclass(frozen=True, kw_only=True)
class PeerRow:
    """What one real peer did in a round.

    Attributes
    ----------
    wait_seconds
        Spent waiting for others to get ready.
    members
        The names of those whose average it is, as far as this peer knows.
    attempts, tried
        How many attempts were committed to, and all that this peer knows of.
    fetched, void
        Whether this peer got the result from others; whether the round's updates were lost.
    bytes_out, bytes_in
        Sent and received since this peer was started.
    samples
        Training samples of this peer.
    clipped
        How many of its values were beyond the range and were cut.
    epsilon
        Of differential privacy, after this round.
    correct, loss, count
        Sums over its own test data, if it has any.
    """

    method: str
    round: RoundNumber
    train_loss: float | None
    train_seconds: float
    average_seconds: float
    wait_seconds: float
    members: tuple[str, ...]
    attempts: int
    tried: tuple[Tried, ...]
    fetched: bool
    void: bool
    bytes_out: int
    bytes_in: int
    samples: int
    clipped: int | None = None
    epsilon: float | None = None
    correct: int | None = None
    loss: float | None = None
    count: int | None = None

    @property
    def score(self) -> Score | None:
        """How the average does on this peer's own test data."""
        if self.correct is None or self.loss is None or not self.count:
            return None
        return Score(self.correct, self.loss, self.count)


R = TypeVar("R", Row, PeerRow)

PER_PEER = ("peer_accuracy", "peer_loss")
COLUMNS = tuple(field.name for field in fields(Row) if field.name not in (*PER_PEER, "tried"))
"""The columns of metrics.csv; all but method and round are numbers."""

_LEFT_OUT = ("tried", "correct", "loss", "count", "clipped", "epsilon")
"""Keys that are not written where they do not apply."""


def to_values(row: Any) -> dict[str, Any]:
    """Return a row, or any other record, in plain values; what does not apply is left out."""
    return {k: v for k, v in asdict(row).items() if v is not None or k not in _LEFT_OUT}


def to_line(row: Row | PeerRow) -> str:
    """Return a row as a line of metrics.jsonl."""
    values = {k: list(map(finite, v)) if k in PER_PEER else finite(v) for k, v in to_values(row).items()}
    return json.dumps(values, allow_nan=False)


def finite(value: Any) -> Any:
    """Return a value as JSON can hold it: None instead of NaN or an infinite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(folder: Path, kind: type[R], *, torn: bool = True) -> list[R]:
    """Read the rows of a run, or those of one real peer; none if there is no file.

    With ``torn`` off a last line that a kill cut short is an error; else it is left out.
    """
    rows = []
    for number, line in enumerate(read_lines(folder / METRICS, torn=torn), start=1):
        try:
            found = json.loads(line)
            if isinstance(found, dict):
                for key in ("accuracy", "loss", *PER_PEER):
                    found |= {key: _numbers(found[key])} if key in found else {}
            rows.append(msgspec.convert(found, kind))
        except ValueError as error:
            raise damaged(folder, METRICS, f"line {number}: {error}") from None
    return rows


def _numbers(value: Any) -> Any:
    """Put NaN where a number is null."""
    return list(map(_numbers, value)) if isinstance(value, list) else math.nan if value is None else value


def write_rows(folder: Path, rows: Iterable[Row]) -> None:
    """Replace metrics.jsonl."""
    write_text(folder / METRICS, "".join(to_line(row) + "\n" for row in rows), RESUME)


def write_table(folder: Path, rows: Iterable[Row]) -> None:
    """Replace metrics.csv."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([finite(getattr(row, name)) for name in COLUMNS] for row in rows)
    write_text(folder / TABLE, text.getvalue(), RESUME)
