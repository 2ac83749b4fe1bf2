"""Before training: whether everything is in place at this site, and whether it can reach all others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securedfl.designs import Design
from securedfl.errors import ConfigError, SecuredFLError
from securedfl.federation.gate import pass_gate
from securedfl.federation.methods import choose_design
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.membership import check_keys
from securedfl.network.core.board import Status, read_status, status_message
from securedfl.network.wire.keys import KeyFiles
from securedfl.network.wire.endpoint import Answer, Endpoint

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
    me, files = config.position(federation), config.files(insecure=federation.insecure)
    identity = {"configuration": federation.hash}
    findings = [Finding("federation.toml", True, f"{len(federation.members)} peers, hash {federation.hash}")]
    try:
        design = choose_design(federation.training)
    except SecuredFLError as error:
        findings.append(Finding("design", False, str(error)))
    else:
        identity["design"] = design.hash
        findings.append(Finding("design", True, f"gap {design.gap}, hash {design.hash}"))
        findings.append(_look("privacy", lambda: _promise(federation, design)))
    if files is not None:
        findings.append(_look("own keys", lambda: check_keys(files, federation.members[me])))
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
        return Endpoint(federation.members, me, files, listen=listen, insecure=federation.insecure, answer=answer)
    except ConfigError:
        return Endpoint(federation.members, me, files, insecure=federation.insecure, serve=False)


def _look(subject: str, work: Callable[[], str]) -> Finding:
    """Return what a look at something gave, or why it failed."""
    try:
        return Finding(subject, True, work())
    except SecuredFLError as error:
        return Finding(subject, False, str(error))


def _promise(federation: FederationConfig, design: Design) -> str:
    return str(pass_gate(federation.training, design).get("sentence", "certified"))


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
