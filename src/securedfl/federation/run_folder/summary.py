"""summary.json: what a run, or as much of it as there is, gave; and data.json: what its peers hold, in numbers only."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from securedfl.designs import Design
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import METHODS
from securedfl.federation.run_folder.files import DATA, RESUME, SUMMARY, damaged, one_or_all, read_object
from securedfl.federation.run_folder.metrics import Row, finite
from securedfl.learning.training.task import PeerSamples
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.storage import look_at_types, write_text


@dataclass(frozen=True, kw_only=True)
class MethodSummary:
    """What one method reached; errors, bytes and times are those of the rounds after the initial average.

    ``all_accuracy`` is the mean over peers of the accuracy on all peers' test data, if peers hold different models.
    """

    label: str = ""
    rounds: int | None = None
    best_accuracy: float | None = None
    best_round: int | None = None
    final_accuracy: float | None = None
    final_loss: float | None = None
    all_accuracy: float | None = None
    final_common_accuracy: float | None = None
    mean_error: float | None = None
    max_error: float | None = None
    bytes_per_peer_per_round: float | None = None
    train_seconds: float | None = None
    average_seconds: float | None = None
    epsilon: float | None = None

    @classmethod
    def of(cls, label: str, rows: Sequence[Row]) -> Self:
        """Sum up a method's rows, which are in the order of rounds."""
        if not rows:
            return cls(label=label)
        trained = [row for row in rows if row.round > 0] or list(rows)
        scored = [row for row in rows if finite(row.accuracy) is not None]
        best = max(scored, key=lambda row: (row.accuracy, -row.round), default=None)
        errors = [row.error_mse for row in trained if row.error_mse is not None]
        return cls(
            label=label,
            rounds=rows[-1].round,
            best_accuracy=None if best is None else finite(best.accuracy),
            best_round=None if best is None else best.round,
            final_accuracy=finite(rows[-1].accuracy),
            final_loss=finite(rows[-1].loss),
            all_accuracy=float(np.mean(rows[-1].all_accuracy)) if rows[-1].all_accuracy else None,
            final_common_accuracy=rows[-1].common_accuracy,
            mean_error=float(np.mean(errors)) if errors else None,
            max_error=max((row.error_max for row in rows if row.error_max is not None), default=None),
            bytes_per_peer_per_round=float(np.mean([row.bytes_per_peer for row in trained])),
            train_seconds=float(sum(row.train_seconds for row in rows)),
            average_seconds=float(sum(row.average_seconds for row in rows)),
            epsilon=rows[-1].epsilon,
        )


@dataclass(frozen=True, kw_only=True)
class Samples:
    """How many samples all peers have together."""

    train: int = 0
    test: int = 0


@dataclass(frozen=True, kw_only=True)
class DesignSummary:
    """Which design was used."""

    hash: str
    gap: int
    group_size: int | None = None
    method: str = ""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run in short; it is ``finished`` when every method has all its rounds.

    ``certificate`` is as `securedfl.privacy` writes it, one per method if several are private; ``config`` has the
    settings in plain values; ``site`` is the real peer whose folder it is, if it is one's own; ``roster`` names all.
    """

    finished: bool = True
    dataset: str = ""
    peers: int
    rounds: int
    seed: int | None = None
    samples: Samples = Samples()
    methods: dict[str, MethodSummary] = field(default_factory=dict)
    design: DesignSummary | None = None
    certificate: dict[str, Any] = field(default_factory=dict)
    run_dir: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    site: str = ""
    roster: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        folder: Path,
        config: TrainConfig,
        design: Design,
        rows: Sequence[Row],
        certificates: Sequence[RunCertificate],
        *,
        samples: Samples,
        finished: bool,
    ) -> Self:
        """Sum up what a run has reached so far."""
        return cls(
            finished=finished,
            dataset=config.subject,
            peers=config.peers,
            rounds=config.rounds,
            seed=config.seed,
            samples=samples,
            methods={
                name: MethodSummary.of(METHODS[name].label, [row for row in rows if row.method == name])
                for name in config.methods
            },
            design=DesignSummary(hash=design.hash, gap=design.gap, group_size=design.group_size, method=design.method),
            certificate=one_or_all({one.method: one.to_dict() for one in certificates}),
            run_dir=str(folder),
            versions=versions(),
            config=config.to_dict(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them; of a method without rounds nothing but its label."""
        methods = {
            name: asdict(method) if method.rounds is not None else {"label": method.label, "rounds": None}
            for name, method in self.methods.items()
        }
        told = {key: value for key, value in asdict(self).items() if value or key not in ("site", "roster")}
        return {**told, "methods": methods}


def read_summary(folder: Path) -> Summary:
    """Read summary.json."""
    try:
        return msgspec.convert(read_object(folder, SUMMARY), Summary)
    except msgspec.ValidationError as error:
        raise damaged(folder, SUMMARY, error) from None


def write_summary(folder: Path, summary: Summary) -> None:
    """Replace summary.json."""
    write_text(folder / SUMMARY, json.dumps(summary.to_dict(), indent=2, allow_nan=False) + "\n", RESUME)


def versions(packages: Iterable[str] = ("numpy", "torch")) -> dict[str, str]:
    """Return what the numbers of a run depend on besides its settings."""
    found = {"securedfl": "", "python": platform.python_version()}
    for name in ("securedfl", *packages):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@dataclass(frozen=True, kw_only=True)
class Data:
    """What ``peers`` hold and train; in a real peer's own folder that is one peer: sites do not tell each other.

    ``common`` counts the samples of the common test set, if there is one; ``averaged`` the parameters of the model that
    are averaged, and ``at_home`` those that stay with each peer, where that is known.
    """

    peers: tuple[PeerSamples, ...]
    common: int | None = None
    averaged: int | None = None
    at_home: int | None = None


def joined(parts: Iterable[Data]) -> Data | None:
    """Return what peers hold together, from what each of them tells; None if nobody tells anything."""
    known = list(parts)
    if not known:
        return None
    common = [part.common for part in known if part.common is not None]
    return Data(
        peers=tuple(one for part in known for one in part.peers),
        common=max(common, default=None),
        averaged=known[0].averaged,
        at_home=known[0].at_home,
    )


def write_data(folder: Path, data: Data) -> None:
    """Replace data.json."""
    peers = [{key: value for key, value in vars(one).items() if value not in (None, "")} for one in data.peers]
    write_text(folder / DATA, json.dumps({**vars(data), "peers": peers}) + "\n", RESUME)


def read_data(folder: Path) -> Data | None:
    """Read data.json; None if there is none, as in older run folders."""
    if not (folder / DATA).exists():
        return None
    try:
        return msgspec.convert(read_object(folder, DATA), Data)
    except msgspec.ValidationError as error:
        raise damaged(folder, DATA, error) from None


look_at_types(Summary, Data)
