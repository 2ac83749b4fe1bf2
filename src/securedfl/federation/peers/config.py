"""Settings of real peers: ``federation.toml``, which all sites share, and each site's own ``peer.toml``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from securedfl.designs import Design
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.config import Device, TrainConfig
from securedfl.federation.identity import as_before
from securedfl.federation.methods import SECURED, choose_design
from securedfl.federation.run_folder.files import STATE
from securedfl.federation.settings import StrictSettings, check_keys, read_toml
from securedfl.network.core.entries import MOST_PEERS, NAME, Line
from securedfl.network.core.entries import Settings as Changeable
from securedfl.network.core.state import State, quorum
from securedfl.network.wire.keys import KeyFiles
from securedfl.network.wire.values import Endpoint, split_address
from securedfl.privacy.absence import Absence, fewest_members, smallest_block
from securedfl.protocols.protocol import by_name

NOT_SHARED = frozenset(
    {
        *("peers", "peers_per_round", "between_rounds", "messages_every", "out", "data_dir", "methods", "workers"),
        *("device", "tensorboard", "wandb", "mlflow", "checkpoint_every", "keep_updates", "masks", "entry", "data"),
        *("engine", "address"),
    }
)
"""Settings of a simulation that make no sense for, or belong to, a single site."""

DEFAULT_PROTOCOL = "resilient"
"""Real peers come and go: this one goes on without those that are lost."""

PEERS_PER_SECOND = 6
"""For so many the default heartbeat leaves time: thirty peers get five seconds, and finish on two busy cores."""

Seconds = Annotated[float, Field(gt=0), BeforeValidator(lambda v: float(v) if type(v) is int else v)]


def _plain(fingerprint: Any) -> Any:
    """Return a fingerprint as all commands and logs write it; other tools write capitals and colons."""
    return fingerprint.replace(":", "").lower() if isinstance(fingerprint, str) else fingerprint


class RosterEntry(StrictSettings):
    """One peer or relay: its name, where others reach it, and the SHA-256 fingerprint of its certificate.

    A peer that only dials out (``listen = false`` in its peer.toml) has no address. One that joined later, by
    ``securedfl roster add``, is ``added``; a peer's place in the list is its number for good.
    """

    name: str = Field(pattern=f"^{NAME}$")
    address: str = ""
    fingerprint: Annotated[str, BeforeValidator(_plain)] = Field("", pattern=r"^([0-9a-f]{64})?$")
    added: bool = False

    def member(self) -> Endpoint:
        """Return the entry as the network takes it."""
        if not self.address:
            return Endpoint(self.name, fingerprint=self.fingerprint)
        host, port = split_address(self.address)
        if not port:
            raise ConfigError(f"address = {self.address!r} of {self.name}: others cannot dial port 0")
        return Endpoint(self.name, host, port, self.fingerprint)


class DeadlineConfig(StrictSettings):
    """How long to wait, in seconds.

    To get ready for a round; without progress within an attempt; for a lost member of a round whose sums may have been
    seen; and between heartbeats, four of which a peer may miss: by default longer with more peers, because each
    of them hears all others.
    """

    train: Seconds = 3600.0
    average: Seconds = 120.0
    absent: Seconds = 300.0
    heartbeat: Seconds | None = None

    def among(self, peers: int) -> dict[str, float]:
        """Return all of them, for so many peers."""
        beat = max(1.0, peers / PEERS_PER_SECOND) if self.heartbeat is None else self.heartbeat
        return {"train": self.train, "average": self.average, "absent": self.absent, "heartbeat": beat}


class FederationConfig(StrictSettings):
    """What all sites share; the same file everywhere."""

    name: str = Field("federation", description="Names the run; another name is another run.")
    peers: tuple[RosterEntry, ...] = Field(min_length=2, max_length=MOST_PEERS, description="The roster, in order.")
    min_peers: int | None = Field(
        None, ge=2, description="Fewest peers of an average (shares, resilient); more than half of the roster."
    )
    absence: Literal["blocks", "wait", "go on"] | None = Field(
        None, description="When peers are missing: leave out their blocks, wait, or go on; see docs/guides/privacy.md."
    )
    window: int = Field(10, ge=1, description="Over how many rounds members change in blocks only.")
    entry: str | None = Field(
        None, description="module:function that returns model, data and update; by default a known data set."
    )
    max_weight: float | None = Field(None, gt=0, description="Most samples of any peer, if weighted.")
    lying: int = Field(0, ge=0, description="How many peers may lie without forking or forging the log.")
    relays: tuple[RosterEntry, ...] = Field((), description="Relays that join peers without a link of their own.")
    train: dict[str, Any] = Field(default_factory=dict, description="Settings as for `securedfl train`.")
    deadlines: DeadlineConfig = Field(default_factory=DeadlineConfig)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and check ``federation.toml``."""
        return cls.resolve(read_toml(path), where=str(path))

    @classmethod
    def resolve(cls, values: Mapping[str, Any], *, where: str = "the federation") -> Self:
        """Check settings; `ConfigError` says what is wrong."""
        for key in ("peers", "relays"):
            for entry in values.get(key, ()):
                if isinstance(entry, Mapping):
                    check_keys(entry, RosterEntry.model_fields, f"[[{key}]] in {where}")
        if isinstance(values.get("deadlines"), Mapping):
            check_keys(values["deadlines"], DeadlineConfig.model_fields, f"[deadlines] in {where}")
        if isinstance(values.get("train"), Mapping):
            known = [key for key in TrainConfig.model_fields if key not in NOT_SHARED]
            check_keys(values["train"], known, f"[train] in {where}")
        prepared = dict(values)
        for key in ("peers", "relays"):
            if isinstance(prepared.get(key), list):
                prepared[key] = tuple(prepared[key])
        config = cls.checked(prepared, where)
        config._check(where)
        return config

    def _check(self, where: str) -> None:
        roster = self.roster
        for what, values in (
            ("name", [line.name for line in roster]),
            ("address", [line.address for line in roster if line.listens]),
            ("fingerprint", [line.fingerprint for line in roster if line.fingerprint]),
        ):
            twice = next((value for value in values if values.count(value) > 1), None)
            if twice is not None:
                raise ConfigError(f"two peers in {where} have the {what} {twice}")
        bare = next((line.name for line in (*roster, *self.relay_roster) if not line.fingerprint), None)
        if bare is not None:
            raise ConfigError(f"{bare} in {where} has no fingerprint; `securedfl certs show` prints it")
        if [entry.added for entry in self.peers] != sorted(entry.added for entry in self.peers):
            raise ConfigError(f"peers that were added come last in {where}")
        quorum(len(self.first), self.lying)
        if self.training.weighted and self.max_weight is None:
            raise ConfigError(
                f"weighted = true in {where} needs max_weight, the largest number of samples of any peer: write it "
                "above [train], or give --max-weight to `securedfl federation init`"
            )
        # whoever is added later: the log asks for more than half of the roster as it is then, besides (`state.refusal`)
        first = len(self.first)
        if self.min_peers is not None and not first // 2 < self.min_peers <= first:
            began = "" if first == len(roster) else " that the run begins with"
            raise ConfigError(
                f"min_peers = {self.min_peers} in {where}: must be more than half of the {first} peers{began}, so "
                "that a cut network never gives two averages"
            )
        if self.min_peers is not None and self.min_peers < self.least:
            raise ConfigError(
                f"min_peers = {self.min_peers} in {where}: at least {self.least} peers must take part, because "
                "colluders subtract their own parameters from the average, and two others must be left"
            )

    @cached_property
    def roster(self) -> tuple[Endpoint, ...]:
        """The roster as the network takes it."""
        return tuple(entry.member() for entry in self.peers)

    @cached_property
    def relay_roster(self) -> tuple[Endpoint, ...]:
        """The relays as the network takes them."""
        return tuple(entry.member() for entry in self.relays)

    @property
    def first(self) -> tuple[RosterEntry, ...]:
        """The roster that the run began with."""
        return tuple(entry for entry in self.peers if not entry.added)

    @cached_property
    def training(self) -> TrainConfig:
        """The settings of training and averaging, as the simulation has them; masks are always secret."""
        return TrainConfig.resolve(
            {
                "protocol": DEFAULT_PROTOCOL,
                **self.train,
                **({} if self.entry is None else {"entry": self.entry}),
                "peers": len(self.first),
                "methods": (SECURED,),
                "masks": "secret",
            },
            where="[train]",
        )

    @cached_property
    def design(self) -> Design:
        """Who meets whom."""
        return choose_design(self.training)

    @cached_property
    def missing(self) -> Absence:
        """What happens when peers are missing."""
        return Absence.chosen(
            self.absence,
            peers=len(self.first),
            collusion=self.training.collusion,
            can_lose=by_name(self.training.protocol).can_lose,
            window=self.window,
            everybody=self.fewest >= len(self.peers),
            lying=self.lying,
        )

    def check_weight(self, name: str, weight: float) -> None:
        """Refuse a weight that does not fit the federation, if that is weighted."""
        largest = self.max_weight or 1.0
        if self.training.weighted and not 0 <= weight <= largest:
            raise InvalidInputError(
                f"{name} has weight {weight:g}, but weights must lie between 0 and max_weight = {largest:g}; change "
                "max_weight in federation.toml, at all sites and before the run begins"
            )

    def no_part(self, name: str) -> str:
        """Return why a known data set has no part for a site; an empty text if it has."""
        began = [entry.name for entry in self.first]
        if name in began:
            return ""
        return (
            f"the data set {self.training.dataset} is dealt among the {len(began)} sites that the run began with, and "
            f"{name} was added: it needs a federation with an entry, and data of its own (docs/guides/own-models.md)"
        )

    @property
    def least(self) -> int:
        """The fewest peers of an average in which two are left beside the colluders."""
        return min(smallest_block(self.training.collusion), len(self.first))

    @property
    def fewest(self) -> int:
        """The fewest members of an average, of the roster that the run began with."""
        if self.min_peers is not None or not by_name(self.training.protocol).can_lose:
            return self.min_peers or len(self.first)
        return fewest_members(len(self.first), self.training.collusion)

    @cached_property
    def told(self) -> dict[str, str]:
        """What all sites must say alike, by name, in words; peers compare it when they meet."""
        found = {f"train.{key}": value for key, value in self.training.to_dict().items() if key not in NOT_SHARED}
        found |= self.model_dump(mode="json", exclude={"train", "peers", "deadlines", "relays"})
        found |= {f"deadlines.{key}": value for key, value in self.deadlines.among(len(self.first)).items()}
        for entry in self.first:
            found |= {f"{entry.name}.address": entry.address, f"{entry.name}.fingerprint": entry.fingerprint}
        return {key: json.dumps(value) for key, value in found.items()}

    @cached_property
    def hash(self) -> str:
        """Short content hash of what stays the same for the whole run: not rounds, deadlines, addresses or keys."""
        names = {entry.name for entry in self.first}
        changing = {f"{name}.{what}" for name in names for what in ("address", "fingerprint")}
        if self.training.privacy is None:
            # with a budget, the noise of every round was settled for so many of them
            changing.add("train.rounds")
        # settings that came later do not change the runs that began without them
        changing |= {f"train.{key}" for key in as_before(self.training) - {"integers", "local"}}
        kept = {k: v for k, v in self.told.items() if k not in changing and not k.startswith("deadlines.")}
        text = json.dumps([kept, [entry.name for entry in self.first]], sort_keys=True)
        return hashlib.sha256(b"securedfl federation 2\0" + text.encode()).hexdigest()[:16]

    def genesis(self, *hashes: str) -> State:
        """Return the state before the first entry of the log; ``hashes`` of what else all peers must have alike."""
        peers = tuple(
            Line(number, entry.name, entry.address, bytes.fromhex(entry.fingerprint))
            for number, entry in enumerate(self.first)
        )
        settings = Changeable(rounds=self.training.rounds + 1, **self.deadlines.among(len(peers)))
        return State(run=" ".join([self.name[:100], self.hash, *hashes]), roster=peers, settings=settings)


class PeerConfig(StrictSettings):
    """One site's own settings."""

    name: str
    federation: Path
    out: Path
    listen: str | Literal[False] | None = Field(None, description="HOST:PORT; by default its address; false: none.")
    key: Path | None = None
    certificate: Path | None = None
    authority: Path | None = None
    renewed: bool = Field(False, description="Whether the key was renewed since the run began; for a new disk.")
    proxy: str | None = Field(None, description="http://HOST:PORT of a CONNECT proxy; by default HTTPS_PROXY.")
    data_dir: Path | None = None
    device: Device = Field("cpu", description="Where a known data set's model trains: cpu, cuda, cuda:1, mps.")
    data: dict[str, Any] = Field(default_factory=dict, description="Handed to the entry point as it is.")
    metrics: str | None = Field(None, description="HOST:PORT of a Prometheus endpoint; off by default.")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and check ``peer.toml``; paths in it are relative to the file."""
        values = read_toml(path)
        for name in ("federation", "out", "key", "certificate", "authority", "data_dir"):
            if isinstance(values.get(name), str):
                values[name] = path.parent / Path(values[name]).expanduser()
        return cls.checked(values, str(path))

    @property
    def state(self) -> Path:
        """The folder of the log, and of what this peer must remember."""
        return self.out / STATE

    def files(self) -> KeyFiles:
        """Return the key files."""
        if self.key is None or self.certificate is None or self.authority is None:
            raise ConfigError(f"peer.toml of {self.name} must name key, certificate and authority")
        return KeyFiles(self.key, self.certificate, self.authority)

    def listens_at(self, federation: FederationConfig) -> str | None:
        """Return where this site listens; None if it only dials out."""
        if self.listen is False:
            return None
        return self.listen or federation.peers[self.position(federation)].address or None

    def position(self, federation: FederationConfig) -> int:
        """Return this peer's place in the roster."""
        names = [line.name for line in federation.roster]
        if self.name not in names:
            raise ConfigError(f"{self.name!r} is not in the roster; it lists {', '.join(names)}")
        return names.index(self.name)
