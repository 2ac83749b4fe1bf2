"""What a run leaves behind when it ends, finished or not: summary, table, certificate and ledger."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from securedfl.federation.algorithm3 import Round
from securedfl.federation.config import TrainConfig
from securedfl.federation.gate import Plans, save_account
from securedfl.federation.methods import METHODS, main_method, members
from securedfl.federation.run_folder.card import write_card
from securedfl.federation.run_folder.files import SUMMARY
from securedfl.federation.run_folder.folder import RunFolder
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.summary import Data, Samples, Summary, read_data, read_summary, write_data
from securedfl.learning.training.task import PeerSamples, Score, Task
from securedfl.parameters import Array
from securedfl.privacy.absence import Absence
from securedfl.privacy.ledger import Tried

if TYPE_CHECKING:
    from securedfl.federation.simulated.aggregation import SimulatedAverage
    from securedfl.learning.training.team import Team


class Counts:
    """How many samples a run has: of an app, that is known only when it has been made and scored.

    Attributes
    ----------
    train
        The training samples of each peer.
    samples, data
        Those of all peers together, and what each of them holds.
    """

    def __init__(self, samples: Samples, data: Data | None = None) -> None:
        self.train: list[int] = []
        self.samples, self.data = samples, data
        self._tests: int | None = None

    @classmethod
    def of(cls, folder: RunFolder) -> Self:
        """Begin with what a resumed run has counted before."""
        known = (folder.path / SUMMARY).exists()
        return cls(read_summary(folder.path).samples if known else Samples(), read_data(folder.path))

    def begin(self, task: Task, team: Team) -> None:
        """Count before training."""
        self.train, known = team.samples(), task.peer_samples()
        self._tests = None if known is None else sum(each.test or 0 for each in known)
        self.samples = Samples(train=sum(self.train), test=self._tests or self.samples.test)
        self.data = Data(peers=tuple(known or map(PeerSamples, self.train)), averaged=team.schema.size)

    def score(self, scores: Sequence[Score | None], common: Sequence[Score]) -> None:
        """Count what was scored: each peer's own test data, and the common test set, which is the same for all."""
        if self.data is None:
            return
        peers = self.data.peers
        if self._tests is None:
            self.samples = replace(self.samples, test=sum(score.count for score in scores if score is not None))
            counted = zip(peers, scores, strict=True)
            peers = tuple(replace(one, test=None if score is None else score.count) for one, score in counted)
        self.data = replace(self.data, peers=peers, common=max((score.count for score in common), default=None))

    def stay(self, homes: Sequence[Mapping[str, Array]]) -> None:
        """Count what of the model stays with each peer."""
        if self.data is not None:
            self.data = replace(self.data, at_home=sum(np.size(value) for value in homes[0].values()))

    def row(
        self, config: TrainConfig, method: str, outcome: Round[SimulatedAverage], common: Sequence[Score] = ()
    ) -> Row:
        """Return the row of a round: what peers reached together, and what the average took."""
        who = members(config, outcome.number)
        told = zip(outcome.losses, [self.train[peer] for peer in who], strict=False)
        losses = [(loss, count) for loss, count in told if loss is not None]
        some = METHODS[method].protocol is not None and len(who) < config.peers
        return replace(
            Row.pooled(method, outcome.number, outcome.scores, losses, common),
            **asdict(outcome.average),
            train_seconds=outcome.train_seconds,
            tried=(Tried(0, 0, who, True),) if some else None,
        )


def leave_results(
    folder: RunFolder,
    samples: Samples,
    data: Data | None,
    *,
    finished: bool,
    absence: Absence | None = None,
    plans: Plans | None = None,
) -> Summary:
    """Write summary, metrics.csv, data, certificate and ledger of what a run has reached; return the summary."""
    config, design, rows = folder.config, folder.design, folder.rows()
    certificates = save_account(folder.path, config, design, rows, absence, plans)
    summary = Summary.of(folder.path, config, design, rows, certificates, samples=samples, finished=finished)
    if data is not None:
        write_data(folder.path, data)
    folder.finish(summary)
    write_card(folder.path, summary, rows, certificates, main_method(config.methods))
    return summary


def default_folder(config: TrainConfig) -> Path:
    """Return runs/DATASET-PEERS-TIME, with a number behind it where another run began in the same second."""
    name = f"{config.subject.replace(':', '-')}-{config.peers}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path for path in (Path("runs") / name for name in names) if not path.exists())
