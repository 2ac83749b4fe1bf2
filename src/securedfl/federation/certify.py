"""The gate before training: what must hold about privacy before any parameter is sent, and what is kept of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from securedfl.designs import Design
from securedfl.designs.coalition_search import Exposure
from securedfl.errors import PrivacyError
from securedfl.federation.config import TrainConfig
from securedfl.federation.files import write_text
from securedfl.federation.methods import options_of, protocol_of
from securedfl.privacy.certificate import Certificate, readable_json
from securedfl.privacy.drawing import exposure_svg
from securedfl.privacy.enforce import DEFAULT_PROMISE, enforce, refusal
from securedfl.privacy.ledger import FILE as LEDGER
from securedfl.privacy.ledger import Attempt, Ledger
from securedfl.privacy.scenario import scenario

CERTIFICATE, EXPOSURE = "certificate.json", "exposure.svg"

BASELINES = frozenset({"local", "fedavg"})
"""Methods that promise no privacy, or need none, and are there for comparison."""

_log = logging.getLogger("securedfl")


def certify(config: TrainConfig, design: Design) -> dict[str, Any]:
    """Return what is certified about this federation, for summary.json; called once, before training starts.

    Parameters
    ----------
    config
        The resolved settings; ``collusion`` and ``allow_exposure`` say what must be withstood.
    design
        Who meets whom.

    Returns
    -------
    dict
        One certificate, or one per method if several methods are to be private; empty if none is.

    Raises
    ------
    PrivacyError
        The settings do not withstand what the federation must, and ``allow_exposure`` is off.
    """
    for method in _private(config):
        certificate, _ = _certified(config, design, method)
        demand = config.collusion > 0
        if demand and not certificate.meets(config.collusion, promise=DEFAULT_PROMISE):
            if not config.allow_exposure:
                options = _protocol(config, method)[1]
                raise PrivacyError(
                    refusal(certificate, design, options, promise=DEFAULT_PROMISE, seed=config.seed)
                )
            _log.warning("exposure is allowed (--allow-exposure): %s", certificate.sentence)
        elif demand and certificate.verdict == "partial sums":
            _log.warning("%s", certificate.sentence)
    return _plain(config, design)


def save(folder: Path, config: TrainConfig, design: Design, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write certificate.json, exposure.svg and ledger.json of what a run has done so far.

    Parameters
    ----------
    folder
        The run folder.
    config, design
        Of the run.
    rows
        Its metrics: one per method and round. What real peers ``tried`` for a round is added up.
    """
    ledgers, done = {}, list(rows)
    for method in _private(config):
        certificate, exposure = _certified(config, design, method)
        attempts = [a for row in done if row["method"] == method for a in _attempts(row, design.n)]
        protocol, options = _protocol(config, method)
        ledger = Ledger(scenario(protocol, design, options)).add(*attempts)
        ledgers[method] = {
            **ledger.to_dict(certificate.worst_coalition),
            "allow_exposure": config.allow_exposure,
        }
        if len(ledgers) == 1:  # the first method's picture
            title = f"{protocol}, {design.n} peers: who can learn about whom"
            picture = exposure_svg(exposure.levels, title, collusion=certificate.collusion)
            write_text(folder / EXPOSURE, picture)
    if ledgers:
        write_text(folder / CERTIFICATE, readable_json(_plain(config, design)) + "\n")
        write_text(folder / LEDGER, readable_json(_only(ledgers)) + "\n")


def _attempts(row: Mapping[str, Any], n: int) -> list[Attempt]:
    """Return what a row of metrics tells about attempts; a simulation needs one, by everybody, in each round."""
    round = int(row["round"])
    known: Sequence[Mapping[str, Any]] = row.get("tried") or [{"members": range(n), "opened": True}]
    return [
        Attempt(
            round=round,
            steps=None if tried["opened"] else 1,
            members=None if len(tried["members"]) == n else tuple(tried["members"]),
        )
        for tried in known
    ]


def _plain(config: TrainConfig, design: Design) -> dict[str, Any]:
    """Return the certificates as JSON holds them."""
    return _only(
        {
            method: {**_certified(config, design, method)[0].to_dict(), **_remarks(config, method)}
            for method in _private(config)
        }
    )


@lru_cache(maxsize=8)
def _certified(config: TrainConfig, design: Design, method: str) -> tuple[Certificate, Exposure]:
    """Examine one method; kept, because the run folder gets what the gate has computed."""
    protocol, options = _protocol(config, method)
    return enforce(
        protocol,
        design,
        options,
        collusion=max(config.collusion, 1),
        rounds=config.rounds + 1,  # round 0 is the initial average
        allow_exposure=True,  # examined here, judged in `certify`
    )


def _private(config: TrainConfig) -> list[str]:
    return [
        method
        for method in config.methods
        if method not in BASELINES and protocol_of(config, method) is not None
    ]


def _protocol(config: TrainConfig, method: str) -> tuple[str, dict[str, Any]]:
    return str(protocol_of(config, method)), options_of(config, method)


def _remarks(config: TrainConfig, method: str) -> dict[str, Any]:
    """Return what the certificate's reader must know about this run."""
    remarks: dict[str, Any] = {
        "method": method,
        "required_collusion": config.collusion,
        "allow_exposure": config.allow_exposure,
        "masks": config.masks,
    }
    if config.masks == "seeded":
        remarks["remark"] = (
            "This run is a simulation that draws masks from its seed, so that it can be repeated; the certificate "
            "describes peers that draw them in secret (masks = secret)."
        )
    return remarks


def _only(found: dict[str, Any]) -> dict[str, Any]:
    return next(iter(found.values())) if len(found) == 1 else found
