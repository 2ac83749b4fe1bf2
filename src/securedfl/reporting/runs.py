"""Read a run folder into a value; whatever is missing or damaged is an error that says what to do."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securedfl.designs import Design
from securedfl.errors import DesignError, RunFolderError
from securedfl.reporting import methods as names

NAN = math.nan
ROUND_FIELDS = (
    "accuracy",
    "loss",
    "train_loss",
    "error_mse",
    "error_max",
    "bytes_per_peer",
    "train_seconds",
    "average_seconds",
)


@dataclass(frozen=True)
class RoundResult:
    """One line of metrics.jsonl; a number that does not apply is NaN."""

    method: str
    round: int
    accuracy: float
    loss: float
    train_loss: float
    error_mse: float
    error_max: float
    bytes_per_peer: float
    train_seconds: float
    average_seconds: float
    peer_accuracy: tuple[float, ...] = ()


@dataclass(frozen=True)
class MethodResult:
    """What one method reached, and its rounds in order."""

    name: str
    rounds: tuple[RoundResult, ...]
    best_accuracy: float = NAN
    final_accuracy: float = NAN
    mean_error: float = NAN
    bytes_per_peer_per_round: float = NAN
    train_seconds: float = NAN
    average_seconds: float = NAN

    @property
    def label(self) -> str:
        """The name that people read."""
        return names.label(self.name)

    @property
    def rounds_done(self) -> int:
        """The number of the last finished round; the evaluation before training is round 0."""
        return self.rounds[-1].round if self.rounds else 0

    def series(self, key: str) -> tuple[list[int], list[float]]:
        """Return the rounds and one column over them, without the rounds where it is not a number."""
        pairs = [(row.round, float(getattr(row, key))) for row in self.rounds]
        kept = [(x, y) for x, y in pairs if math.isfinite(y)]
        return [x for x, _ in kept], [y for _, y in kept]


@dataclass(frozen=True)
class Run:
    """A run folder's content."""

    name: str
    peers: int
    rounds: int
    seed: int | None
    dataset: str
    finished: bool
    methods: tuple[MethodResult, ...]
    config: str
    settings: Mapping[str, Any]
    design: Design | None
    summary: Mapping[str, Any] = field(repr=False)
    certificate: Mapping[str, Any] | None = None
    ledger: Mapping[str, Any] | None = None
    exposure_svg: str | None = None

    @property
    def rounds_done(self) -> int:
        """The rounds that every method has finished."""
        return min((m.rounds_done for m in self.methods), default=0)

    @property
    def started(self) -> bool:
        """Whether any method has finished a round, so that there is something to draw."""
        return any(m.rounds_done for m in self.methods)

    def method(self, name: str) -> MethodResult | None:
        """Return one method's results, or None when it was not run."""
        return next((m for m in self.methods if m.name == name), None)


def read_run(folder: str | Path) -> Run:
    """Read a run folder.

    Parameters
    ----------
    folder
        What ``securedfl train --out`` wrote. An unfinished run is fine, and so is one without any finished
        round; a last line of metrics.jsonl that was cut off while being written is left out.

    Raises
    ------
    RunFolderError
        A file is missing, unreadable or does not belong to this run.
    """
    path = Path(folder)
    if not path.is_dir():
        raise RunFolderError(
            f"there is no run folder {path}; give the folder that `securedfl train --out` wrote"
        )
    summary = _mapping(path, "summary.json")
    finished = summary.get("finished", True)
    if not isinstance(finished, bool):
        raise _damaged(path, "summary.json", '"finished" is neither true nor false')
    rows = _read_metrics(path, finished=finished)
    return Run(
        name=path.resolve().name,
        peers=_count(path, summary, "peers"),
        rounds=_count(path, summary, "rounds"),
        seed=_count(path, summary, "seed") if summary.get("seed") is not None else None,
        dataset=str(summary.get("dataset", "")),
        finished=finished,
        methods=_methods(path, summary, rows),
        config=_text(path, "config.toml"),
        settings=_settings(path),
        design=_design(path, summary),
        summary=summary,
        certificate=_mapping(path, "certificate.json") if (path / "certificate.json").exists() else None,
        ledger=_mapping(path, "ledger.json") if (path / "ledger.json").exists() else None,
        exposure_svg=_text(path, "exposure.svg") if (path / "exposure.svg").exists() else None,
    )


def _read_metrics(path: Path, *, finished: bool) -> list[RoundResult]:
    if not finished and not (path / "metrics.jsonl").exists():
        return []
    text = _text(path, "metrics.jsonl")
    lines = text.splitlines()
    rows: dict[tuple[str, int], RoundResult] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = _round(json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            if not finished and number == len(lines) and not text.endswith("\n"):
                break
            raise _damaged(path, "metrics.jsonl", f"line {number}: {_reason(error)}") from None
        rows[row.method, row.round] = row
    return list(rows.values())


def _round(data: object) -> RoundResult:
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    method, number = data["method"], data["round"]
    if not isinstance(method, str):
        raise TypeError('"method" is not a name')
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError('"round" is not a whole number from 0')
    peers = data.get("peer_accuracy") or []
    if not isinstance(peers, list):
        raise TypeError('"peer_accuracy" is not a list')
    columns = {key: _number(data.get(key), key) for key in ROUND_FIELDS}
    return RoundResult(
        method, number, **columns, peer_accuracy=tuple(_number(p, "peer_accuracy") for p in peers)
    )


def _methods(path: Path, summary: Mapping[str, Any], rows: list[RoundResult]) -> tuple[MethodResult, ...]:
    stated = summary.get("methods", {})
    if not isinstance(stated, dict) or not all(isinstance(v, dict) for v in stated.values()):
        raise _damaged(path, "summary.json", '"methods" is not a table of methods')
    found = []
    for name in names.ordered([*stated, *(row.method for row in rows)]):
        own = sorted((row for row in rows if row.method == name), key=lambda row: row.round)
        try:
            found.append(_method(name, own, stated.get(name, {})))
        except TypeError as error:
            raise _damaged(path, "summary.json", f"method {name!r}: {error}") from None
    return tuple(found)


def _method(name: str, rows: list[RoundResult], stated: Mapping[str, Any]) -> MethodResult:
    """Join the summary's figures with the rounds; what an unfinished summary lacks comes from the rounds."""
    result = MethodResult(name, tuple(rows))
    trained = MethodResult(name, tuple(row for row in rows if row.round > 0))
    accuracy = result.series("accuracy")[1]
    computed = {
        "best_accuracy": max(accuracy, default=NAN),
        "final_accuracy": accuracy[-1] if accuracy else NAN,
        "mean_error": _mean(trained.series("error_mse")[1]),
        "bytes_per_peer_per_round": _mean(trained.series("bytes_per_peer")[1]),
        "train_seconds": sum(result.series("train_seconds")[1]) if rows else NAN,
        "average_seconds": sum(result.series("average_seconds")[1]) if rows else NAN,
    }
    figures = {k: _number(stated[k], k) if stated.get(k) is not None else v for k, v in computed.items()}
    return MethodResult(name, tuple(rows), **figures)


def _design(path: Path, summary: Mapping[str, Any]) -> Design | None:
    stated = summary.get("design")
    if not stated and not (path / "design.json").exists():
        return None
    _text(path, "design.json")
    try:
        design = Design.load(path / "design.json")
    except DesignError as error:
        raise _damaged(path, "design.json", str(error)) from None
    expected = stated.get("hash") if isinstance(stated, dict) else None
    if expected not in (None, design.hash):
        raise RunFolderError(
            f"{path / 'design.json'} has hash {design.hash}, but this run used {expected}; "
            "put back the run's own design.json or repeat the run"
        )
    return design


def _text(path: Path, name: str) -> str:
    try:
        return (path / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RunFolderError(
            f"{path} has no {name}, so it is not a complete run folder; give the folder that "
            "`securedfl train --out` wrote, or continue the run with `securedfl train --resume`"
        ) from None
    except UnicodeDecodeError:
        raise _damaged(path, name, "not UTF-8 text") from None
    except OSError as error:
        raise RunFolderError(f"cannot read {path / name}: {error.strerror}; check its permissions") from None


def _mapping(path: Path, name: str) -> Mapping[str, Any]:
    try:
        data = json.loads(_text(path, name))
    except ValueError as error:
        raise _damaged(path, name, _reason(error)) from None
    if not isinstance(data, dict):
        raise _damaged(path, name, "not a JSON object")
    return data


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(path, "config.toml"))
    except tomllib.TOMLDecodeError as error:
        raise _damaged(path, "config.toml", str(error)) from None


def _count(path: Path, summary: Mapping[str, Any], key: str) -> int:
    value = summary.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _damaged(path, "summary.json", f'"{key}" is not a whole number')
    return value


def _number(value: object, key: str) -> float:
    if value is None:
        return NAN
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f'"{key}" is not a number')
    try:
        return float(value)
    except OverflowError:
        raise TypeError(f'"{key}" is too large') from None


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else NAN


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _damaged(path: Path, name: str, reason: str) -> RunFolderError:
    return RunFolderError(
        f"{path / name} is damaged ({reason}); restore it from a copy, or repeat the run with "
        f"`securedfl train {path / 'config.toml'}` into a new folder"
    )
