"""The names of a run folder's files, and reading them with errors that say what to do; the settings of a run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from securedfl import storage
from securedfl.errors import ConfigError, RunFolderError
from securedfl.federation.config import TrainConfig
from securedfl.federation.identity import BEFORE
from securedfl.federation.settings import RENAMED

CONFIG, DESIGN, SUMMARY = "config.toml", "design.json", "summary.json"
METRICS, TABLE = "metrics.jsonl", "metrics.csv"
DATA, LIVE, FEDERATION = "data.json", "live.json", "federation"
CERTIFICATE, EXPOSURE, LEDGER = "certificate.json", "exposure.svg", "ledger.json"

RESUME = "free some space, then continue with --resume"
"""What to do about a disk that is full in the middle of a run."""


def updates_file(folder: Path, method: str, round: int) -> Path:
    """Where a run folder keeps the peers' parameters before the average of a round."""
    return folder / "updates" / f"{method}-{round}.safetensors"


def read_text(folder: Path, name: str) -> str:
    """Read a text file of a run."""
    try:
        return (folder / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise missing(folder, name) from None
    except UnicodeDecodeError:
        raise damaged(folder, name, "not UTF-8 text") from None
    except OSError as error:
        raise RunFolderError(f"cannot read {folder / name}: {error.strerror}; check its permissions") from None


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """Read a JSON object of a run."""
    try:
        found = json.loads(read_text(folder, name))
    except ValueError as error:
        raise damaged(folder, name, error) from None
    if not isinstance(found, dict):
        raise damaged(folder, name, "not a JSON object")
    return found


def one_or_all(by_method: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what certificate.json and ledger.json hold: the entry of the only private method, or all by method."""
    return next(iter(by_method.values())) if len(by_method) == 1 else by_method


def by_method(found: object, sign: str) -> dict[str, Mapping[str, Any]]:
    """Return the entries of such a file, which have the sign among their keys; the only one under the name ""."""
    if not isinstance(found, Mapping):
        return {}
    entries = {"": found} if sign in found else found
    return {name: entry for name, entry in entries.items() if isinstance(entry, Mapping) and sign in entry}


def read_ledger(folder: Path) -> dict[str, Any]:
    """Read the ledger of a run, or its ledgers by method."""
    found = read_object(folder, LEDGER)
    entries = by_method(found, "attempts")
    if not entries or ("attempts" not in found and len(entries) < len(found)):
        raise damaged(folder, LEDGER, "not a ledger")
    return found


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of a run as they stand in its file, by the names that they have today.

    What was added later is as it was when the run began.
    """
    try:
        found = tomllib.loads(read_text(folder, CONFIG))
    except tomllib.TOMLDecodeError as error:
        raise damaged(folder, CONFIG, error) from None
    return BEFORE | {RENAMED.get(key, key): value for key, value in found.items()}


def read_config(folder: Path) -> TrainConfig:
    """Return the settings of a run as they resolve today."""
    try:
        return TrainConfig.resolve(read_settings(folder), where=str(folder / CONFIG))
    except ConfigError as error:
        raise RunFolderError(f"the run in {folder} cannot be read: {error}") from None


def missing(folder: Path, name: str) -> RunFolderError:
    """Return the error for a run folder without a file that it should have."""
    return RunFolderError(
        f"{folder} has no {name}, so it is not a complete run folder; give the folder that `securedfl train --out` "
        "or a peer that has ended wrote, or continue the run with `securedfl train --resume`"
    )


def damaged(folder: Path, name: str, reason: object) -> RunFolderError:
    """Return the error for a file that does not hold what it should."""
    again = f"`securedfl train {folder / CONFIG}` into a new folder"
    return storage.damaged(folder / name, reason, f"restore it from a copy, or repeat the run with {again}")
