"""Keep what finished runs gave in docs/results/runs, and make the tables and figures of docs/results from all of them.

    python docs/keep_runs.py [runs/reproduce]

Of a run its settings, its numbers, the versions that trained it and which predictions were right are kept, not its
models. That is enough to compute every table, interval and verdict again: `securedfl reproduce table --no-train --out
docs/results` gives the same bytes (tests/experiments/test_kept_runs.py). It is enough to add seeds, too: in a copy of
docs/results `securedfl reproduce table --datasets femnist --peers 9 --seeds 0-9` trains those that are not there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from securedfl.experiments.result_files import read, write

KEPT = Path(__file__).parent / "results"
FILES = ("config.toml", "metrics.jsonl", "averaging.json", "correct")
SUMMARY = "summary.json"
TOLD = ("finished", "dataset", "peers", "rounds", "seed", "versions")
"""What is kept of the summary: no places, and nothing that follows from the rest."""
EXPERIMENTS = ("table", "curves", "iterations")
WITHOUT_RUNS = (
    *("accuracy", "privacy", "privacy-femnist/privacy"),
    *("own-starts/table", "own-starts/curves", "own-starts/iterations", "own-starts/accuracy"),
)
"""Results whose runs were not kept: they are presented again from their numbers, which stay as they are."""


def keep(run: Path, kept: Path) -> bool:
    """Copy what is kept of a run; return whether it has finished, which others have not."""
    if not (run / SUMMARY).exists():
        return False
    summary = json.loads((run / SUMMARY).read_text(encoding="utf-8"))
    if not summary["finished"]:
        return False
    for name in FILES:
        if (run / name).is_dir():
            shutil.copytree(run / name, kept / name, dirs_exist_ok=True)
        elif (run / name).exists():
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(run / name, kept / name)
    told = {key: summary[key] for key in TOLD if key in summary}
    (kept / SUMMARY).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return True


def main() -> None:
    """Keep the runs of a folder, and make the results again."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="?", type=Path, default=Path("runs/reproduce"), help="what --out was")
    found = sorted((parser.parse_args().runs / "runs").glob("*/"))
    for run in found:
        told = "kept" if keep(run, KEPT / "runs" / run.name) else "has not finished: left out"
        sys.stdout.write(f"{run.name} {told}\n")
    for name in EXPERIMENTS:
        command = [sys.executable, "-m", "securedfl", "reproduce", name, "--no-train", "--out", str(KEPT)]
        subprocess.run(command, check=True)  # noqa: S603 - our own command, with fixed words
    for name in WITHOUT_RUNS:
        folder = (KEPT / name).parent
        write(folder, *read(folder, Path(name).name))
        (KEPT / name).with_suffix(".png").unlink(missing_ok=True)
    for surplus in [*KEPT.glob("*.png"), KEPT / "report.html"]:
        surplus.unlink()


if __name__ == "__main__":
    main()
