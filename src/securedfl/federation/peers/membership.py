"""Joining a federation: what one site knows before, and the open session of which it is a member."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from securedfl.designs import Design
from securedfl.errors import ConfigError, InvalidInputError, RunFolderError
from securedfl.federation.bringing import Brought
from securedfl.federation.gate import pass_gate
from securedfl.federation.methods import bringing, check_settings, choose_design
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.events import Tell, Waiting
from securedfl.federation.peers.rules import METHOD, make_rules
from securedfl.federation.peers.telemetry import serve_metrics, session_metrics
from securedfl.network.core.rules import Averaged
from securedfl.network.core.session import Session
from securedfl.network.wire.keys import KeyFiles, check_pair
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.tls import Member
from securedfl.parameters import Array, Schema
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.steps import Draw
from securedfl.storage import make_folder, write_text

log = logging.getLogger("securedfl.peer")

CHECK_OUT = "check out in peer.toml"


@dataclass(frozen=True)
class Site:
    """What one site knows before it joins: its settings, its keys, who meets whom, and what is certified."""

    config: PeerConfig
    federation: FederationConfig
    me: int
    files: KeyFiles | None
    design: Design
    certificate: Mapping[str, Any]

    @classmethod
    def of(cls, config: PeerConfig) -> Self:
        """Read the federation's settings, make the site's folder, and check all that needs no network."""
        make_folder(config.out, CHECK_OUT, private=True)
        federation = FederationConfig.load(config.federation)
        me, files = config.position(federation), config.files(insecure=federation.insecure)
        if files is not None:
            check_keys(files, federation.members[me])
        check_settings(federation.training)
        design = choose_design(federation.training)
        return cls(config, federation, me, files, design, pass_gate(federation.training, design, federation.missing))


@dataclass(frozen=True)
class Membership:
    """An open session, and the site that is a member of it."""

    site: Site
    session: Session

    def bring(self, w: Array, round: int, weight: float = 1.0, residual: Array | None = None) -> Brought:
        """Return what this site brings to the average of a round; see `Bringing`."""
        federation = self.site.federation
        largest = federation.max_weight or 1.0
        if federation.training.weighted and not 0 <= weight <= largest:
            raise InvalidInputError(
                f"{self.site.config.name} has weight {weight:g}; weights must lie between 0 and max_weight = "
                f"{largest:g}"
            )
        how = bringing(federation.training, METHOD, self.site.design, w.dtype.name)(round)
        base = self.result() if federation.training.differences and round else None
        return how(w, base, draw=secret_uniform, weight=weight / largest, residual=residual)

    def average(self, vector: Array, round: int) -> tuple[Averaged, Array]:
        """Average what `bring` gave; return the outcome and the model that all hold now."""
        outcome = self.session.average(vector, round)
        return outcome, outcome.vector

    def result(self) -> Array:
        """Return the model of the last confirmed average."""
        return self.session.results.load()

    def linger(self, last: int, absent: float) -> None:
        """Stay until the others have finished the last round too: they may still need this peer's result or vote.

        Those that are gone get ``absent`` seconds to come back and fetch the result.
        """
        board, everyone = self.session.board, range(len(self.site.federation.members))
        # at once: the others wait to hear just that
        board.say(finished=self.session.results.round)

        def all_done() -> bool:
            return all(board.status(k).finished >= last or board.status(k).phase == "left" for k in everyone)

        def nobody_left_to_wait_for() -> bool:
            return all(board.status(k).finished >= last or not board.present(k) for k in everyone)

        if not board.wait(all_done, absent):
            board.wait(nobody_left_to_wait_for, self.site.federation.deadlines.average)


@contextmanager
def membership(
    site: Site,
    schema: Schema,
    *,
    last: int | None = None,
    draws: Callable[[int, int], Draw] | None = None,
    tell: Tell = lambda _event: None,
) -> Iterator[Membership]:
    """Open a session for a model of that schema, and leave it with a word to the others.

    A peer that already holds the result of the ``last`` round has nobody to wait for. ``tell`` hears who is missing at
    the start; ``draws`` is for tests (see `Session`).
    """
    config, federation = site.config, site.federation
    rules = make_rules(federation, site.design, schema)
    identity = {"configuration": federation.hash, "design": site.design.hash, "model": schema.hash}
    _claim(config.out, identity)
    endpoint = Endpoint(federation.members, site.me, site.files, listen=config.listen, insecure=federation.insecure)
    session = Session(
        endpoint,
        federation.run,
        rules,
        identity=identity,
        state=config.out / "state",
        draws=draws,
        heartbeat=federation.deadlines.heartbeat,
        silence=federation.deadlines.silence,
    )
    with ExitStack() as stack:
        stack.callback(session.close)
        if config.metrics:
            server = serve_metrics(config.metrics, lambda: session_metrics(session))
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        if last is None or session.results.round < last:
            session.join(lambda missing: tell(Waiting(tuple(missing))))
        try:
            yield Membership(site, session)
        except BaseException as error:  # Ctrl-C too: the others need not wait for silence
            if session.board.mine.phase != "left":
                session.leave(f"{config.name} stopped: {type(error).__name__}")
            raise
        session.leave("")


def check_keys(files: KeyFiles, member: Member) -> str:
    """Refuse keys that have expired, or that the roster does not expect; return how long they are valid."""
    info = check_pair(files)
    if info.name != member.name or info.fingerprint != member.fingerprint:
        raise ConfigError(
            f"{files.certificate} is for {info.name!r} with fingerprint {info.fingerprint[:16]}..., but the roster "
            f"expects {member.name!r} with {member.fingerprint[:16]}..."
        )
    warning = info.expiry()
    if not info.valid():
        raise ConfigError(warning)
    if warning:
        log.warning("%s", warning)
    return warning or f"valid until {info.not_after:%Y-%m-%d}"


def _claim(out: Path, identity: dict[str, str]) -> None:
    """Refuse a folder that holds the state of another federation."""
    path = out / "identity.json"
    if not path.exists():
        write_text(path, json.dumps(identity), CHECK_OUT)
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if found != identity:
        raise RunFolderError(
            f"{out} holds the state of another federation, design or model; choose another out in peer.toml"
        )
