"""metrics.jsonl and metrics.csv: one row per method and round of a run, or per round of a real peer."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import msgspec
import numpy as np

from securedfl.federation.run_folder.files import METRICS, RESUME, TABLE, damaged, mend
from securedfl.learning.training.task import Score
from securedfl.privacy.ledger import Tried
from securedfl.storage import look_at_types, read_lines, write_text

RoundNumber = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a method had reached after a round; round 0 is the initial average.

    Attributes
    ----------
    accuracy, loss
        Pooled over all peers' own test data. What is not finite, of a model that fails, is null on disk.
    peer_accuracy, peer_loss
        Of each peer on its own test data, null of one that has none; nothing if nobody has any.
    common_accuracy, common_loss
        On the common test set, if there is one: of the common model, or the mean over peers whose models differ.
    all_accuracy
        Of each peer on the test data of all peers, after the last round, if peers hold different models.
    train_loss
        Mean over all training samples.
    error_mse, error_max
        How far the average is from the true mean, which only a simulation knows; of rounds whose messages are passed.
    bytes_per_peer
        Sent by a peer, on average.
    clipped
        How many values of all peers were beyond the range and were cut, if that is allowed.
    epsilon
        Of differential privacy, after this round; see `securedfl.privacy.budget`.
    messages
        Of a simulation that passes the protocol's messages in some rounds only: whether it did in this one.
    tried, void
        Of real peers: all attempts at the average, and whether the round gave none.
    """

    method: str
    round: RoundNumber
    accuracy: float = math.nan
    loss: float = math.nan
    peer_accuracy: tuple[float, ...] = ()
    peer_loss: tuple[float, ...] = ()
    all_accuracy: tuple[float, ...] | None = None
    train_loss: float | None = None
    error_mse: float | None = None
    error_max: float | None = None
    bytes_per_peer: float = 0.0
    clipped: int | None = None
    train_seconds: float = 0.0
    average_seconds: float = 0.0
    common_accuracy: float | None = None
    common_loss: float | None = None
    epsilon: float | None = None
    messages: bool | None = None
    tried: tuple[Tried, ...] | None = None
    void: bool | None = None

    @classmethod
    def pooled(
        cls,
        method: str,
        round: int,
        scores: Sequence[Score | None],
        losses: Sequence[tuple[float, int]],
        common: Sequence[Score] = (),
    ) -> Self:
        """Pool what peers reached.

        Parameters
        ----------
        method, round
            What was reached when.
        scores
            Of each peer, on its own test data; None of a peer that has none.
        losses
            Of training, with the number of samples.
        common
            Scores on the common test set.
        """
        told = [score for score in scores if score is not None]
        count = sum(score.count for score in told)
        each = [score if score is not None and score.count else None for score in scores] if told else []
        common_count = sum(score.count for score in common)
        means, samples = zip(*losses, strict=True) if losses else ((), ())
        return cls(
            method=method,
            round=round,
            accuracy=sum(score.correct for score in told) / count if count else math.nan,
            loss=sum(score.loss for score in told) / count if count else math.nan,
            peer_accuracy=tuple(math.nan if score is None else score.correct / score.count for score in each),
            peer_loss=tuple(math.nan if score is None else score.loss / score.count for score in each),
            common_accuracy=sum(score.correct for score in common) / common_count if common_count else None,
            common_loss=sum(score.loss for score in common) / common_count if common_count else None,
            train_loss=float(np.average(means, weights=samples if any(samples) else None)) if losses else None,
        )

    @classmethod
    def of_peer(cls, row: PeerRow, before: int) -> Self:
        """Return what a real peer's row tells; ``before`` is how many bytes the peer had sent in the round before."""
        # the mean of one loss may have other bits than the loss
        pooled = cls.of_peers(row.round, {"": replace(row, train_loss=None)}, {"": before})
        return replace(pooled, train_loss=row.train_loss, clipped=row.clipped)

    @classmethod
    def of_peers(cls, round: int, rows: Mapping[str, PeerRow], before: Mapping[str, int]) -> Self:
        """Return one row of all real peers; the true mean is nobody's to know, so errors stay unknown.

        Parameters
        ----------
        round, rows
            What each peer, by name, did in the round.
        before
            How many bytes each had sent before it.
        """
        values = list(rows.values())
        scores = [row.score for row in values if row.score is not None]
        known = [(row.train_loss, row.samples) for row in values]
        losses = [(loss, samples) for loss, samples in known if loss is not None and samples is not None]
        # a peer counts anew when it is started again
        sent = sum(_since(row.bytes_out, before.get(name, 0)) for name, row in rows.items())
        common = [row.common for row in values if row.common is not None]
        return replace(
            cls.pooled(values[0].method, round, scores, losses, common),
            bytes_per_peer=sent / len(rows),
            train_seconds=max(row.train_seconds for row in values),
            average_seconds=max(row.average_seconds for row in values),
            epsilon=max((row.epsilon for row in values if row.epsilon is not None), default=None),
            tried=_tried(values),
            void=all(row.void for row in values),
        )


def pool(rows: Mapping[str, Mapping[int, PeerRow]]) -> list[Row]:
    """Return the rounds of all real peers, from what each of them, by name, did in each of its rounds."""
    before: dict[str, int] = {}
    found = []
    for round in sorted({number for own in rows.values() for number in own}):
        told = {name: own[round] for name, own in rows.items() if round in own}
        found.append(Row.of_peers(round, told, before))
        before |= {name: row.bytes_out for name, row in told.items()}
    return found


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
        Training samples of this peer, if they are known here.
    clipped
        How many of its values were beyond the range and were cut.
    epsilon
        Of differential privacy, after this round.
    correct, loss, count
        Sums over its own test data, if it has any.
    common
        The same sums over the common test set, if this peer has it.
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
    samples: int | None
    clipped: int | None = None
    epsilon: float | None = None
    correct: int | None = None
    loss: float | None = None
    count: int | None = None
    common: Score | None = None

    @property
    def score(self) -> Score | None:
        """How the average does on this peer's own test data."""
        if self.correct is None or self.loss is None or not self.count:
            return None
        return Score(self.correct, self.loss, self.count)


def _since(sent: int, before: int) -> int:
    """Return what was sent since; a peer that was started again counts anew."""
    return sent - before if sent >= before else sent


def _tried(rows: Iterable[PeerRow]) -> tuple[Tried, ...]:
    """Pool what peers know about the attempts of a round; any of them may have missed some."""
    found: dict[tuple[int, int], Tried] = {}
    for row in rows:
        for tried in row.tried:
            key = (tried.epoch, tried.attempt)
            found[key] = replace(tried, opened=tried.opened or found.get(key, tried).opened)
    return tuple(found[key] for key in sorted(found))


R = TypeVar("R", Row, PeerRow)

PER_PEER = ("peer_accuracy", "peer_loss", "all_accuracy")
COLUMNS = tuple(field.name for field in fields(Row) if field.name not in (*PER_PEER, "messages", "tried", "void"))
"""The columns of metrics.csv; all but method and round are numbers."""

_LEFT_OUT = (
    *("messages", "tried", "void", "correct", "loss", "count", "clipped", "epsilon"),
    *("common", "common_accuracy", "common_loss", "all_accuracy"),
)
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

    The rows of a real peer can be read as those of a run, too. With ``torn`` off a last line that a kill cut short is
    an error; else it is left out.
    """
    rows: list[R] = []
    sent = 0
    for number, line in enumerate(read_lines(folder / METRICS, torn=torn, mend=mend(folder)), start=1):
        try:
            found = json.loads(line)
            if isinstance(found, dict):
                for key in ("accuracy", "loss", *PER_PEER):
                    found |= {key: _numbers(found[key])} if key in found else {}
            if kind is Row and isinstance(found, dict) and "bytes_out" in found:
                row = msgspec.convert(found, PeerRow)
                made: Any = Row.of_peer(row, sent)
                rows.append(made)
                sent = row.bytes_out
            else:
                rows.append(msgspec.convert(found, kind))
        except (ValueError, RecursionError) as error:
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


look_at_types(Row, PeerRow)
