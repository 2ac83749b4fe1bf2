"""What a peer needs to know before it starts, and where it is while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from securedfl.errors import ConfigError
from securedfl.network.core.entries import Line
from securedfl.network.core.events import Train
from securedfl.network.core.messages import NO_RESULT, Result
from securedfl.network.core.state import Rules, State
from securedfl.network.data.averages import Averages
from securedfl.network.wire.keys import KeyFiles
from securedfl.network.wire.values import Endpoint, Reach, split_address
from securedfl.network.words import UNADMITTED


@dataclass(frozen=True, kw_only=True)
class PeerSettings:
    """All that a peer needs to know before it starts.

    Attributes
    ----------
    name, number
        Of this peer.
    files, folder
        Its keys, and the folder of its state.
    genesis, rules, averages
        The log's first state, what the federation's files fix for good, and how averages are computed.
    shared
        What the federation's files say, by name; peers compare it when they meet.
    listen, relays, proxy
        As for `Links`.
    renewed
        Whether its key was renewed since the run began, so that the log's first state names another one.
    check
        Looked at while an average is waited for, whenever the log goes on: raises why that cannot be.
    """

    name: str
    number: int
    files: KeyFiles
    folder: Path
    genesis: State
    rules: Rules
    averages: Averages
    shared: Mapping[str, str] = field(default_factory=dict)
    listen: str | None = None
    relays: Sequence[Endpoint] = ()
    proxy: str | None = None
    renewed: bool = False
    check: Callable[[State], None] = lambda _state: None


@dataclass(frozen=True)
class Progress:
    """Where the log and this peer are.

    Attributes
    ----------
    state, task
        What the log says, and the round to train for now, if any.
    applied
        The model that this peer has.
    ready, present, finished
        Who is ready for the round, who is there, and who has the newest model.
    strange
        Who came with another state folder, and waits to be admitted.
    asking
        Who of those that are there has an operator that waits for a decision.
    since
        The last round for which all members of an attempt were ready, and when they were.
    """

    state: State
    task: Train | None = None
    applied: Result = NO_RESULT
    ready: tuple[int, ...] = ()
    present: tuple[int, ...] = ()
    strange: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    asking: tuple[int, ...] = ()
    since: tuple[int, float] = (-1, 0.0)

    @property
    def todo(self) -> Train | None:
        """The round to train for now, if any."""
        task = self.task
        return None if task is None or self.state.over or task.round != self.state.round else task

    @property
    def done(self) -> bool:
        """Whether no further round is to be trained, and the last model is here."""
        return self.state.over and self.applied == self.state.model


def heard(reaches: Mapping[str, Reach], now: Progress) -> dict[str, Reach]:
    """Return how others are reached; one that is linked and says nothing is not."""
    there = {peer.name for peer in now.state.roster if peer.number in now.present}
    strange = {peer.name for peer in now.state.roster if peer.number in now.strange}
    silent = Reach(False, None, "it is linked, but nothing is heard from it; is its process stopped?")
    new = Reach(False, None, f"it {UNADMITTED}")
    told = {name: new if name in strange else silent for name in reaches}
    return {name: told[name] if one.linked and name not in there else one for name, one in reaches.items()}


def removed(settings: PeerSettings, state: State) -> bool:
    """Say whether the log knew this peer and has let it go; one that it does not know yet may still be added."""
    known = any((peer.number, peer.name) == (settings.number, settings.name) for peer in state.retired)
    return known and state.peer(settings.number) is None


def check_key(settings: PeerSettings, state: State, own: bytes) -> str:
    """Return what is wrong with a peer's key; a log that is not here yet may name another one, if its owner says so."""
    mine = state.peer(settings.number)
    if mine is None or mine.key == own:
        return ""
    text = (
        f"{settings.files.certificate} has the fingerprint {own.hex()}, but the roster expects {mine.key.hex()}; "
        "use the right key, or `securedfl roster renew`"
    )
    if not state.length and not settings.renewed:
        raise ConfigError(f"{text}; if it was renewed, and this disk is new, set renewed = true in peer.toml")
    return text


def endpoints_of(roster: Sequence[Line], me: str) -> list[Endpoint]:
    """Return the roster as links take it; a peer that is not in it yet adds itself."""
    found = {me: Endpoint(me)}
    for peer in roster:
        host, port = "", 0
        # what the log says ends nobody: a peer whose address is none can still dial out, and be moved again
        with suppress(ConfigError):
            host, port = split_address(peer.address)
        found[peer.name] = Endpoint(peer.name, host, port, peer.key.hex())
    return list(found.values())
