"""Before training: whether everything is in place at this site, and whether it can reach all others."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securedfl.errors import ConfigError, SecuredFLError
from securedfl.federation.certify import certify, choose_design
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.network.core.board import Status, read_status, status_message
from securedfl.network.wire import tls
from securedfl.network.wire.endpoint import Answer, Endpoint
from securedfl.network.wire.keys import KeyFiles, check_pair

CLOCK_SLACK = 5.0
"""Seconds that clocks may differ: certificates and logs are read by them."""


@dataclass(frozen=True)
class Finding:
    """One line of the table: what was looked at, whether it is fine, what was found, and whether it was there."""

    subject: str
    ok: bool
    text: str
    reached: bool = True


def check(path: Path, *, wait: float = 0.0) -> list[Finding]:
    """Look at everything that a peer needs before it starts; no parameter is sent.

    Parameters
    ----------
    path
        Of ``peer.toml``.
    wait
        Seconds to wait for the others, who may run the same check: meanwhile this site answers them.
    """
    config = PeerConfig.load(path)
    federation = FederationConfig.load(config.federation)
    me = config.position(federation)
    findings = [Finding("federation.toml", True, f"{len(federation.members)} peers, hash {federation.hash}")]
    identity = {"configuration": federation.hash}
    findings += _privacy(federation, identity)
    files = config.files(insecure=federation.insecure)
    if files is not None:
        findings.append(_keys(files, federation.members[me]))
        if not findings[-1].ok:
            return findings
    status = Status(identity=json.dumps(identity, sort_keys=True))
    callers: set[int] = set()

    def answer(peer: int, _message: dict[str, Any]) -> dict[str, Any]:
        callers.add(peer)
        return status_message(status)

    endpoint = _endpoint(federation, me, files, config.listen, answer)
    others = [k for k in range(len(federation.members)) if k != me]
    deadline = time.monotonic() + wait
    found = {k: _reach(endpoint, k, identity) for k in others}
    while time.monotonic() < deadline and not (all(f.ok for f in found.values()) and callers >= set(others)):
        time.sleep(0.2)
        again = {k: _reach(endpoint, k, identity) for k in others if not found[k].ok}
        # a peer that ended its own check meanwhile was there, and what it said is worth more
        found |= {k: new for k, new in again.items() if new.reached or not found[k].reached}
    endpoint.close()
    return findings + list(found.values())


def _endpoint(
    federation: FederationConfig, me: int, files: KeyFiles | None, listen: str | None, answer: Answer
) -> Endpoint:
    """Return an endpoint that listens, unless this site's peer already does."""
    try:
        return Endpoint(
            federation.members, me, files, listen=listen, insecure=federation.insecure, answer=answer
        )
    except ConfigError:
        return Endpoint(federation.members, me, files, insecure=federation.insecure, serve=False)


def _privacy(federation: FederationConfig, identity: dict[str, str]) -> Sequence[Finding]:
    training = federation.training
    try:
        design = choose_design(training)
        design.verify()
    except SecuredFLError as error:
        return [Finding("design", False, str(error))]
    identity["design"] = design.hash
    findings = [Finding("design", True, f"gap {design.gap}, hash {design.hash}")]
    try:
        certificate = certify(training, design)
        findings.append(Finding("privacy", True, str(certificate.get("sentence", "certified"))))
    except SecuredFLError as error:
        findings.append(Finding("privacy", False, str(error)))
    return findings


def _keys(files: KeyFiles, member: tls.Member) -> Finding:
    try:
        info = check_pair(files)
    except SecuredFLError as error:
        return Finding("own keys", False, str(error))
    if info.name != member.name or info.fingerprint != member.fingerprint:
        return Finding(
            "own keys", False, f"the certificate is {info.name!r}, which the roster does not expect here"
        )
    warning = info.expiry()
    return Finding("own keys", info.valid(), warning or f"valid until {info.not_after:%Y-%m-%d}")


def _reach(endpoint: Endpoint, peer: int, identity: dict[str, str]) -> Finding:
    """Ask a peer for its hashes and its time of day, over a connection that proves who it is."""
    member = endpoint.roster[peer]
    try:
        status = read_status(endpoint.call(peer, {"kind": "hello"}))
    except SecuredFLError as error:
        return Finding(member.name, False, str(error), reached=False)
    text, ok = [f"reached at {member.address}"], True
    ahead = status.clock / 1000 - time.time()
    if abs(ahead) > CLOCK_SLACK:
        ok = False
        text.append(f"its clock is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}")
    theirs = json.loads(status.identity or "{}")
    for what, mine in identity.items():
        if theirs.get(what) != mine:
            ok = False
            text.append(f"it has another {what}: {theirs.get(what)} there, {mine} here")
    return Finding(member.name, ok, "; ".join(text))
