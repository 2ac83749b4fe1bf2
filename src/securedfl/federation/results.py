"""What a run leaves behind when it ends, finished or not: summary, table, certificate and ledger."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from securedfl.federation.config import TrainConfig
from securedfl.federation.gate import EVERYBODY, Plans, save_account
from securedfl.federation.methods import METHODS
from securedfl.federation.run_folder.folder import RunFolder
from securedfl.federation.run_folder.summary import DesignSummary, MethodSummary, Samples, Summary, versions
from securedfl.learning.training.task import Task
from securedfl.privacy.absence import Absence


def leave_results(
    folder: RunFolder,
    task: Task,
    certificate: Mapping[str, Any],
    *,
    finished: bool,
    absence: Absence = EVERYBODY,
    plans: Plans | None = None,
) -> Summary:
    """Write summary, metrics.csv, certificate and ledger of what a run has reached; return the summary."""
    config, design, rows = folder.config, folder.design, folder.rows()
    summary = Summary(
        finished=finished,
        dataset=config.dataset,
        peers=config.peers,
        rounds=config.rounds,
        seed=config.seed,
        samples=Samples(train=sum(task.samples), test=sum(len(dealt.test) for dealt in task.dealt)),
        methods={
            method: MethodSummary.of(METHODS[method].label, [row for row in rows if row.method == method])
            for method in config.methods
        },
        design=DesignSummary(hash=design.hash, gap=design.gap, group_size=design.group_size, method=design.method),
        certificate=dict(certificate),
        run_dir=str(folder.path),
        versions=versions(),
        config=config.to_dict(),
    )
    folder.finish(summary)
    save_account(folder.path, config, design, rows, absence, plans)
    return summary


def default_folder(config: TrainConfig) -> Path:
    """Return runs/DATASET-PEERS-TIME."""
    return Path("runs") / f"{config.dataset}-{config.peers}-{time.strftime('%Y%m%d-%H%M%S')}"
