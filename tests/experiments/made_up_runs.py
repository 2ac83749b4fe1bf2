"""Run folders of experiments, made up on disk in no time."""

import json

import numpy as np
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.experiments.presets import read_preset
from securedfl.experiments.result_files import EXPERIMENTS
from securedfl.experiments.runs.training import needed_runs
from securedfl.federation.run_folder.correctness import CorrectKeeper
from securedfl.federation.run_folder.metrics import Row
from securedfl.learning.training.task import ScoredOn

TABLE = read_preset("table")
OURS = {"local": 0.97, "fedavg": 0.99, "paper": 0.9901, "secured": 0.99, "shares": 0.99}


def curve(rounds, best):
    """Return accuracies from round 0 on that rise to the best one, and end a little below it."""
    rising = [best - 0.001 * (rounds - 1 - r) for r in range(1, rounds)]
    return [0.1, *rising, best - 0.0005] if rounds > 1 else [0.1, best]


def write_run(cell, best, *, done=None, test=10_000, kept=True):
    """Write what `securedfl train` would leave of a run in which methods reach these accuracies.

    ``done`` is the last round, if the run was stopped; it then has no summary. What a better model gets right is what
    a worse one does, and more; without ``kept`` that is not known.
    """
    rounds, folder = cell.config.rounds, cell.folder
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(cell.config.to_toml())
    rows = [
        {
            "method": method,
            "round": number,
            "accuracy": value,
            "train_seconds": 2.0 if number else 0.0,
            "average_seconds": 0.5 if number else 0.0,
        }
        for method in cell.config.methods
        if method in best
        for number, value in enumerate(curve(rounds, best[method])[: None if done is None else done + 1])
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for method in best if kept else ():
        values = curve(rounds, best[method])
        keeper = CorrectKeeper(folder, method, ScoredOn(*[np.arange(test, dtype=np.int32)] * 2))
        for number in (values.index(max(values)), rounds):
            right = np.arange(test) < round(values[number] * test)
            keeper.see(Row(method=method, round=number, accuracy=values[number]), [right])
        keeper.before(lambda _: None)(None)
    if done is None:
        summary = {"finished": True, "peers": cell.config.peers, "rounds": rounds, "samples": {"test": test}}
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def write_runs(out, experiment, best, *, test=10_000, kept=True, **options):
    """Write all runs of an experiment; ``best`` gives the accuracies by method for each run's settings."""
    for cell in needed_runs(read_preset(experiment), out, **options):
        write_run(cell, best(cell.config) if callable(best) else best, test=test, kept=kept)
    return out


def invoke(*arguments):
    """Run ``securedfl reproduce`` and return what came of it."""
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], env={"COLUMNS": "120"})


def collected(experiment, out):
    return EXPERIMENTS[experiment].collect(read_preset(experiment), out, print)


def shown(experiment, out):
    return EXPERIMENTS[experiment].present(collected(experiment, out))


def verdicts(result):
    return {finding.claim: finding.verdict for finding in result.findings}
