"""Where a run stands, as the log of one site says, whether or not its peer runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from securedfl.errors import ConfigError
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.telemetry import PHASES
from securedfl.federation.run_folder.files import DATA
from securedfl.network.core.state import Rules, State
from securedfl.network.journal import read_state
from securedfl.network.operator import pending_in_words
from securedfl.protocols.protocol import by_name

WORDS = {
    "not begun": "the run has not begun, the first start needs every peer once",
    "done": "all rounds are done",
    "ended": "an operator ended the run",
}
"""Phases in which nothing is averaged; the others say themselves what peers do."""


@dataclass(frozen=True)
class Member:
    """A line of the roster, as federation.toml has it, with its number; ``added`` came after the first start."""

    number: int
    name: str
    address: str
    fingerprint: str
    added: bool


@dataclass(frozen=True)
class Standing:
    """Where a run stands: its name, the round that runs or was the last, the last one of all, the phase, the members.

    ``phase`` is what peers do in the round, or ``not begun``, ``done`` or ``ended``; ``reason`` says why it ended.
    ``block`` is how many peers come and go together, 0 if each may alone; ``asked`` what an operator of this site asked
    for that is not decided, in words.
    """

    name: str
    round: int
    rounds: int
    phase: str
    reason: str
    members: tuple[Member, ...]
    block: int = 0
    asked: str = ""

    @property
    def told(self) -> str:
        """The phase in words."""
        return in_words(self.phase, self.reason)


def in_words(phase: str, reason: str = "") -> str:
    """Return a phase in words, and why the run ended, if it did."""
    return WORDS.get(phase, phase) + (f": {reason}" if reason else "")


def standing(path: Path) -> Standing:
    """Read where the run stands, as the log of the site with this ``peer.toml`` says; no log is a `RunFolderError`."""
    config = PeerConfig.load(path)
    federation = FederationConfig.load(config.federation)
    first, now = _read(config, federation)
    phase = "done" if now.over else PHASES[now.phase]
    began = {line.number for line in first.roster}
    last = now.settings.rounds - 1
    return Standing(
        name=federation.name,
        round=min(now.round, last),
        rounds=last,
        phase="ended" if now.ended else phase if now.length else "not begun",
        reason=now.ended,
        members=tuple(
            Member(line.number, line.name, line.address, line.key.hex(), line.number not in began)
            for line in now.roster
        ),
        block=federation.missing.block if federation.missing.policy == "blocks" else 0,
        asked=pending_in_words(config.state, now),
    )


def check_can_grow(path: Path, name: str) -> None:
    """Refuse a new site where this site's peer trains its part of a known data set: none is left for another.

    Only such a peer without an entry counts its data; a loop of somebody's own that joined does not.
    """
    config = PeerConfig.load(path)
    # one that is not there is told by whoever needs it
    if not config.federation.exists():
        return
    federation = FederationConfig.load(config.federation)
    if federation.entry is None and (config.out / DATA).exists() and (why := federation.no_part(name)):
        raise ConfigError(f"{name} is not asked for, because it could not start: {why}")


def own_log(config: PeerConfig, federation: FederationConfig) -> State | None:
    """Return what the log of a site says now; None if nothing is decided there yet, so that its files count."""
    if not (config.state / "journal").exists():
        return None
    _, now = _read(config, federation)
    return now if now.length else None


def _read(config: PeerConfig, federation: FederationConfig) -> tuple[State, State]:
    rules = Rules(lying=federation.lying, can_lose=by_name(federation.training.protocol).can_lose)
    return read_state(config.state, rules)
