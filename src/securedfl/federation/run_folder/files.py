"""The names of a run folder's files, and reading them with errors that say what to do; the settings of a run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from securedfl import storage
from securedfl.errors import ConfigError, PrivacyError, RunFolderError
from securedfl.federation.config import TrainConfig
from securedfl.federation.identity import BEFORE
from securedfl.federation.settings import RENAMED
from securedfl.privacy.account import Account
from securedfl.privacy.run_certificate import RunCertificate

CONFIG, DESIGN, SUMMARY = "config.toml", "design.json", "summary.json"
METRICS, TABLE = "metrics.jsonl", "metrics.csv"
DATA, CODING, LIVE, FEDERATION, STATE = "data.json", "coding.json", "live.json", "federation", "state"
PEER_LOG = "peer.log"
CERTIFICATE, EXPOSURE, LEDGER = "certificate.json", "exposure.svg", "ledger.json"

T = TypeVar("T")

RESUME = "{mend}, then go on: `securedfl train --resume`, or start the peer again"
"""What to do about a file that cannot be written in the middle of a run, such as on a full disk."""

ANEW = "(`securedfl peer`), which writes all but the rows of earlier rounds anew"
"""What starting a real peer again does for its folder."""


def is_trial(folder: Path) -> bool:
    """Tell whether a run folder is that of `securedfl up`: real peers have their own folders in it."""
    return (folder / FEDERATION).is_dir()


def is_site(folder: Path) -> bool:
    """Tell whether a run folder is that of one real peer; its state may have been moved away."""
    return (folder / STATE / "journal").exists() or (folder / PEER_LOG).exists()


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


def one_or_all(by_method: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what certificate.json and ledger.json hold: the entry of the only private method, or all by method."""
    return dict(next(iter(by_method.values())) if len(by_method) == 1 else by_method)


def read_certificates(folder: Path) -> dict[str, RunCertificate]:
    """Read certificate.json, by method; the certificate of the only private method has no name."""
    return certificates_of(folder, CERTIFICATE, read_object(folder, CERTIFICATE))


def certificates_of(folder: Path, name: str, found: Mapping[str, Any]) -> dict[str, RunCertificate]:
    """Return the certificates that a file of a run holds."""
    return _by_method(folder, name, found, "verdict", RunCertificate.from_dict)


def read_ledgers(folder: Path) -> dict[str, Account]:
    """Read ledger.json, by method, as `read_certificates` does."""
    return _by_method(folder, LEDGER, read_object(folder, LEDGER), "attempts", Account.from_dict)


def _by_method(
    folder: Path, name: str, found: Mapping[str, Any], sign: str, read: Callable[[Mapping[str, Any]], T]
) -> dict[str, T]:
    """Read what `one_or_all` gave; an entry has the sign among its keys."""
    entries = {"": found} if sign in found else found
    if not entries or not all(isinstance(entry, Mapping) and sign in entry for entry in entries.values()):
        raise damaged(folder, name, f"it lacks {sign!r}")
    try:
        return {method: read(entry) for method, entry in entries.items()}
    except PrivacyError as error:
        raise damaged(folder, name, error) from None


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
    if is_site(folder):
        return RunFolderError(f"{folder} has no {name}: start its peer again {ANEW}")
    return RunFolderError(
        f"{folder} has no {name}, so it is not a complete run folder; give the folder that `securedfl train --out` "
        "or a peer that has ended wrote, or continue the run with `securedfl train --resume`"
    )


def damaged(folder: Path, name: str, reason: object) -> storage.DamagedError:
    """Return the error for a file that does not hold what it should."""
    return storage.damaged(folder / name, reason, mend(folder))


def mend(folder: Path) -> str:
    """Return what to do about a file that does not hold what it should."""
    command = "up" if is_trial(folder) else "train"
    again = f"repeat the run with `securedfl {command} {folder / CONFIG}` into a new folder"
    if is_site(folder):
        again = f"move it away and start this peer again {ANEW}"
    return f"restore it from a copy, or {again}"
