"""Joining: wait for the others, and compare what must be the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from securedfl.errors import ConfigError, PeerLostError
from securedfl.network.core.board import Board, Status
from securedfl.network.core.rules import Rules
from securedfl.network.wire.endpoint import Endpoint

Progress = Callable[[list[str]], None]
"""Told the names of those still missing, whenever they change."""


def await_everybody(
    endpoint: Endpoint, board: Board, rules: Rules, identity: Mapping[str, str], progress: Progress | None
) -> None:
    """Wait until all peers are there, or enough of them if the run has already begun; compare identities."""
    n, me = len(endpoint.roster), endpoint.me
    others = [peer for peer in range(n) if peer != me]
    missing: list[int] | None = None

    def everybody() -> bool:
        nonlocal missing
        for peer in others:
            if board.present(peer):
                compare(endpoint.roster[peer].name, board.status(peer).identity, identity)
        now = [peer for peer in others if not board.present(peer) and not _came_and_left(board.status(peer))]
        if now != missing and progress is not None:
            progress([endpoint.roster[peer].name for peer in now])
        missing = now
        begun = any(board.status(peer).finished >= 0 for peer in range(n))
        return not now or (begun and rules.can_lose and n - len(now) >= rules.least)

    if not board.wait(everybody, rules.deadlines.join):
        problems = "; ".join(board.entry(peer).problem or endpoint.roster[peer].name for peer in missing or ())
        raise PeerLostError(f"not all peers came within {rules.deadlines.join:g} s: {problems}")


def compare(name: str, theirs: str, identity: Mapping[str, str]) -> None:
    """Raise `ConfigError` if a peer told other hashes than this one has; one that told none yet is not judged."""
    if not theirs:
        return
    values = _object(theirs)
    for what, mine in identity.items():
        if values.get(what) != mine:
            raise ConfigError(
                f"{name} has another {what}: {values.get(what)} there, {mine} here; "
                "all peers need the same federation.toml, design and model"
            )


def _came_and_left(status: Status) -> bool:
    """Tell whether a peer left after it had begun: it will not come, and the round decides what that means."""
    return status.phase == "left" and status.round >= 0


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}
