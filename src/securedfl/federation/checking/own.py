"""Before training: what stands at this site itself. Once a run has begun, its own log goes before federation.toml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from securedfl.errors import ConfigError, PeerLostError, RunFolderError, SecuredFLError
from securedfl.federation.checking.opening import Examined
from securedfl.federation.checking.room import try_to_write
from securedfl.federation.checking.standing import in_words, own_log
from securedfl.federation.peers.begun import naming_changes
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.site import check_keys, expiry_of
from securedfl.federation.peers.telemetry import serve_metrics
from securedfl.network.core.messages import NO_RESULT
from securedfl.network.core.state import State
from securedfl.network.data.results import file_of
from securedfl.network.journal import check_run, look_into
from securedfl.network.operator import pending
from securedfl.network.progress import endpoints_of
from securedfl.network.wire.contact.door import bound
from securedfl.network.wire.values import Endpoint

DECIDED = (".address", ".fingerprint", "train.rounds", "deadlines.")
"""Settings of federation.toml that only say how a run begins: later the log decides them."""


@dataclass(frozen=True)
class OwnSite:
    """One site: the path of its peer.toml, its settings and those of all, and where its log stands, if it has begun.

    ``unread`` says that there is a log, and that it cannot be read: nobody knows what it decided.
    """

    path: Path
    config: PeerConfig
    federation: FederationConfig
    log: State | None = None
    unread: bool = False

    @property
    def roster(self) -> Sequence[Endpoint]:
        """Who belongs to the federation, as far as this site knows."""
        return self.federation.roster if self.log is None else endpoints_of(self.log.roster, self.config.name)

    @property
    def me(self) -> Endpoint:
        """The line of this site in the roster."""
        return next(one for one in self.roster if one.name == self.config.name)

    @property
    def over(self) -> str:
        """That the run is over here, in words; an empty text if it is not, or if others are needed all the same.

        They are for a last model that is not here, and for what the operator asked for and is not decided.
        """
        if self.log is None or not self.log.over or pending(self.config.state) is not None:
            return ""
        last = self.log.model
        if last != NO_RESULT and not file_of(self.config.state / "results", last).exists():
            return ""
        return f"the run is over: {in_words('ended' if self.log.ended else 'done', self.log.ended)}"

    def still(self, key: str) -> bool:
        """Say whether a setting must be the same at all sites now."""
        return self.log is None or not any(part in key for part in DECIDED)

    def state(self) -> str:
        """Say what is in the state folder; refuse the log of another run, and a disk that takes nothing more."""
        found = look_into(self.config.state)
        try_to_write(self.config.state)
        if self.log is None:
            return found
        design = self.federation.design.hash
        # an app may add to the settings, and the model is known when it runs: `opening` compares all of it
        known = self.federation.genesis(design).run if self.federation.entry is None else self.federation.name[:100]
        with naming_changes(self.config.out, self.federation.training):
            check_run(self.config.state, self.log.run, known)
        last = self.log.settings.rounds - 1
        over = f"; {self.over}" if self.over else ""
        return f"{found}, round {min(self.log.round, last)} of {last}{over}"

    def members(self) -> str:
        """Say who belongs to the federation, by what, and how the two differ."""
        if self.log is None:
            return f"{len(self.roster)} peers by federation.toml: nothing is decided here yet"
        if self.me.fingerprint == "":
            gone = self.config.name in {line.name for line in self.log.retired}
            raise ConfigError(
                "this site's log says that it was removed from the roster: its name and key never count again; to come "
                "back it takes new ones, and `securedfl roster add` at another site"
                if gone
                else "this site's log does not name it yet: `securedfl roster add` at a site that belongs to the run"
            )
        changes = list(_changes(self.federation.roster, self.roster))
        told = f"{len(self.roster)} peers by this site's own log, not by federation.toml"
        return f"{told}, which is older: {'; '.join(changes)}" if changes else f"{told}, which says the same"

    def key(self) -> str:
        """Say how long the key is valid; refuse one that does not fit, or is not the one of the roster."""
        files = self.config.files()
        found = check_keys(files, self.config.name, self.path)
        until = expiry_of(found, files, self.path) or f"valid until {found.not_after:%Y-%m-%d}"
        valid = f"{until}, fingerprint {found.fingerprint}"
        if self.me.fingerprint in ("", found.fingerprint):
            return valid
        if self.unread:
            return f"{valid}, which federation.toml does not name; what the log says of it cannot be read"
        expected = f"has the fingerprint {found.fingerprint}, but"
        if self.log is None and self.config.renewed:
            return f"{valid}, renewed since federation.toml was written, as {self.path} says"
        if self.log is None:
            raise ConfigError(
                f"{files.certificate} {expected} federation.toml says {self.me.fingerprint}: before the first start, "
                "correct that at all sites, or use the key that it names; if the run has begun, the key was renewed in "
                f"it and this disk is new, leave federation.toml as it is, and set renewed = true in {self.path}"
            )
        raise ConfigError(
            f"{files.certificate} {expected} this site's log says {self.me.fingerprint}: use that key, or, if this one "
            f"is new, tell all: securedfl roster renew {self.path} --certificate {files.certificate}    # at any site "
            "whose peer runs, with its own peer.toml"
        )

    def listening(self) -> str:
        """Say where this site listens; refuse an address that cannot be used."""
        listen = self.config.listens_at(self.federation)
        if listen is None:
            return "this site only dials out"
        with closing(bound(listen)):
            pass
        return f"{listen} is free"

    def moved(self) -> str:
        """Warn where others dial another address than the one at which this site listens; empty if they do not."""
        listen = self.config.listens_at(self.federation)
        if not self.me.listens or self.config.listen or listen == self.me.address:
            return ""
        here = f"listens at {listen}, as federation.toml says" if listen else "only dials out"
        return f'others dial {self.me.address}, and this site {here}: set listen = "HOST:PORT" in {self.path}'

    def metrics(self) -> str:
        """Say where metrics are served; refuse an address that cannot be used, or that is the one of the peer."""
        address, listen = str(self.config.metrics), self.config.listens_at(self.federation)
        with ExitStack() as stack:
            if listen is not None:
                stack.enter_context(closing(bound(listen)))
            server = serve_metrics(address, list, str)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        return f"{address} is free"


def look_at_home(
    path: Path, config: PeerConfig, federation: FederationConfig, *, running: bool
) -> tuple[OwnSite, list[Examined]]:
    """Return the site, and what was found there; a peer that runs has its ports itself."""
    try:
        home = OwnSite(path, config, federation, own_log(config, federation))
    except SecuredFLError as error:
        home = OwnSite(path, config, federation, unread=True)
        findings = [failed("state folder", error)]
    else:
        findings = [look("state folder", home.state), look("roster", home.members)]
    findings = [look("own keys", home.key), *findings]
    if not running:
        listening = look("listening", home.listening)
        findings.append(listening)
        if config.metrics and listening.ok:
            findings.append(look("metrics", home.metrics))
    if moved := home.moved():
        findings.append(Examined("own address", True, moved, True))
    return home, findings


def look(subject: str, work: Callable[[], str]) -> Examined:
    """Return what a look at something gave, or why it failed."""
    try:
        return Examined(subject, True, work())
    except SecuredFLError as error:
        return failed(subject, error)


def failed(subject: str, error: SecuredFLError) -> Examined:
    """Return what an error says of something."""
    lost, folder = isinstance(error, PeerLostError), isinstance(error, RunFolderError)
    return Examined(subject, False, str(error), lost, folder)


def _changes(before: Sequence[Endpoint], now: Sequence[Endpoint]) -> Iterator[str]:
    """Yield what a roster has changed, in words."""
    old, new = ({one.name: one for one in roster} for roster in (before, now))
    for name in old.keys() - new.keys():
        yield f"{name} has left"
    for name, one in new.items():
        if name not in old:
            yield f"{name} was added, at {one.address}" if one.listens else f"{name} was added, and only dials out"
            continue
        if (old[name].host, old[name].port) != (one.host, one.port):
            yield f"{name} is at {one.address} now" if one.listens else f"{name} only dials out now"
        if old[name].fingerprint != one.fingerprint:
            yield f"{name} has the key with fingerprint {one.fingerprint} now"
