"""Read a run folder into one value; whatever is missing or damaged is an error that says what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import tomli_w

from securedfl.designs import Design
from securedfl.errors import DesignError, RunFolderError
from securedfl.federation.methods import label, ordered
from securedfl.federation.run_folder import files
from securedfl.federation.run_folder.correctness import Correct, read_correct
from securedfl.federation.run_folder.metrics import Row, finite, read_rows
from securedfl.federation.run_folder.summary import Data, MethodSummary, Samples, Summary, read_data, read_summary
from securedfl.privacy.account import Account
from securedfl.privacy.run_certificate import RunCertificate

NAN = math.nan


@dataclass(frozen=True)
class MethodResult:
    """What one method reached, and its rounds in order."""

    name: str
    rounds: tuple[Row, ...]
    best_accuracy: float = NAN
    final_accuracy: float = NAN
    mean_error: float = NAN
    bytes_per_peer_per_round: float = NAN
    train_seconds: float = NAN
    average_seconds: float = NAN

    @property
    def label(self) -> str:
        """The name that people read."""
        return label(self.name)

    @property
    def rounds_done(self) -> int:
        """The number of the last finished round; the evaluation before training is round 0."""
        return self.rounds[-1].round if self.rounds else 0

    def series(self, key: str) -> tuple[list[int], list[float]]:
        """Return the rounds and one column over them, without the rounds in which it has no value."""
        found = {row.round: finite(getattr(row, key)) for row in self.rounds}
        kept = {round: float(value) for round, value in found.items() if value is not None}
        return list(kept), list(kept.values())


@dataclass(frozen=True)
class Run:
    """A run folder's content; ``site`` names the real peer whose own it is, and ``trial`` is that of `securedfl up`.

    ``certificates`` and ``ledgers`` are by method; those of the only private one have no name. ``correct`` has, by
    method, which test predictions were right after its last round, where that was kept.
    """

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
    summary: Summary = field(repr=False)
    samples: Samples = field(default_factory=Samples)
    data: Data | None = None
    site: str = ""
    trial: bool = False
    roster: Mapping[str, str] = field(default_factory=dict)
    certificates: Mapping[str, RunCertificate] = field(default_factory=dict)
    ledgers: Mapping[str, Account] = field(default_factory=dict)
    exposure_svg: str | None = None
    correct: Mapping[str, Correct] = field(default_factory=dict, repr=False)

    @property
    def rounds_done(self) -> int:
        """The rounds that every method has finished."""
        return min((m.rounds_done for m in self.methods), default=0)

    @property
    def started(self) -> bool:
        """Whether any method has finished a round, so that there is something to draw."""
        return any(m.rounds_done for m in self.methods)

    def peer(self, number: int) -> str:
        """Return a peer's name, or its number if it has none."""
        known = () if self.data is None or self.site else self.data.peers
        name = known[number].name if number < len(known) else ""
        return self.roster.get(str(number)) or name or str(number)

    def method(self, name: str) -> MethodResult | None:
        """Return one method's results, or None when it was not run."""
        return next((m for m in self.methods if m.name == name), None)


def read_run(folder: str | Path) -> Run:
    """Read a run folder.

    Parameters
    ----------
    folder
        What ``securedfl train --out`` or a real peer wrote. An unfinished run is fine, and so is one without any
        finished round; a last line of metrics.jsonl that was cut off while being written is left out.

    Raises
    ------
    RunFolderError
        A file is missing, unreadable or does not belong to this run.
    """
    path = run_folder(Path(folder))
    if not path.is_dir():
        raise RunFolderError(f"there is no run folder {path}; give the folder that `securedfl train --out` wrote")
    summary = read_summary(path)
    if summary.finished and not (path / files.METRICS).exists():
        raise files.missing(path, files.METRICS)
    # TOML has no null
    own = {key: value for key, value in summary.config.items() if value is not None}
    methods = _methods(summary, read_rows(path, Row, torn=not summary.finished))
    correct = {m.name: read_correct(path, m.name, "final", m.rounds_done) for m in methods}
    return Run(
        name=path.resolve().name,
        peers=summary.peers,
        rounds=summary.rounds,
        seed=summary.seed,
        dataset=summary.dataset,
        finished=summary.finished,
        methods=methods,
        config=tomli_w.dumps(own) if summary.site else files.read_text(path, files.CONFIG),
        settings=summary.config if summary.site else files.read_settings(path),
        design=_design(path, summary),
        summary=summary,
        samples=summary.samples,
        data=read_data(path),
        site=summary.site,
        trial=files.is_trial(path),
        roster=summary.roster,
        certificates=_certificates(path, summary),
        ledgers=files.read_ledgers(path) if (path / files.LEDGER).exists() else {},
        exposure_svg=files.read_text(path, files.EXPOSURE) if (path / files.EXPOSURE).exists() else None,
        correct={name: known for name, known in correct.items() if known is not None},
    )


def _certificates(path: Path, summary: Summary) -> dict[str, RunCertificate]:
    """Return what is certified; the summary says it, too."""
    if (path / files.CERTIFICATE).exists():
        return files.read_certificates(path)
    return files.certificates_of(path, files.SUMMARY, summary.certificate) if summary.certificate else {}


def run_folder(path: Path) -> Path:
    """Return the folder of a run; a real peer's log has a folder of its own in it, which is taken for the same."""
    return path.parent if path.name == files.STATE and files.is_site(path.parent) else path


def _methods(summary: Summary, rows: Sequence[Row]) -> tuple[MethodResult, ...]:
    """Join the summary's figures with the rounds; of a round that is there twice, the later row counts."""
    found = []
    for name in ordered([*summary.methods, *(row.method for row in rows)]):
        own = {row.round: row for row in rows if row.method == name}
        in_order = [own[round] for round in sorted(own)]
        # of a run that goes on, or was killed, the rounds know more
        stated = summary.methods.get(name) if summary.finished or not in_order else None
        found.append(_method(name, in_order, stated or MethodSummary()))
    return tuple(found)


def _method(name: str, rows: Sequence[Row], stated: MethodSummary) -> MethodResult:
    """Return a method's results; what an unfinished summary lacks comes from the rounds."""
    computed = MethodSummary.of("", rows)
    figures = {}
    for key in [figure.name for figure in fields(MethodResult)[2:]]:
        value = getattr(stated, key)
        value = getattr(computed, key) if value is None else value
        figures[key] = NAN if value is None else float(value)
    return MethodResult(name, tuple(rows), **figures)


def _design(path: Path, summary: Summary) -> Design | None:
    if summary.design is None and not (path / files.DESIGN).exists():
        return None
    files.read_text(path, files.DESIGN)
    try:
        design = Design.load(path / files.DESIGN)
    except DesignError as error:
        raise files.damaged(path, files.DESIGN, error) from None
    if summary.design is not None and summary.design.hash != design.hash:
        raise RunFolderError(
            f"{path / files.DESIGN} has hash {design.hash}, but this run used {summary.design.hash}; "
            "put back the run's own design.json or repeat the run"
        )
    return design
