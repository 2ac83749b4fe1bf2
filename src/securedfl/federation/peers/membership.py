"""Joining a federation: what one site knows before, and its running peer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

from securedfl.designs import Design
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.apps.settings import with_common
from securedfl.federation.bringing import Bringing, Brought
from securedfl.federation.budget.planning import check_privacy, make_plan
from securedfl.federation.budget.rules import check_budget
from securedfl.federation.gate import pass_gate
from securedfl.federation.methods import SECURED, averaging_of, bringing, check_settings, choose_design
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.events import Tell, Waiting
from securedfl.federation.peers.rules import make_averages, make_rules
from securedfl.federation.peers.telemetry import live_of, peer_metrics, serve_metrics
from securedfl.federation.run_folder.live import beating
from securedfl.learning.training.common_optimizer import CommonOptimizer
from securedfl.network.core.events import Tell as CoreTell
from securedfl.network.data.averages import Averaged, check_own
from securedfl.network.letters import RUN
from securedfl.network.peer import Peer
from securedfl.network.progress import PeerSettings
from securedfl.network.wire.keys import KeyFiles, check_pair
from securedfl.parameters import Array, Schema
from securedfl.privacy.budget.plan import Plan
from securedfl.privacy.run_certificate import RunCertificate
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.steps import Draw
from securedfl.storage import make_folder

log = logging.getLogger("securedfl.peer")

MOST_ARRAYS = 200
"""Arrays of a model that are compared one by one when peers meet; the hash is of all."""

CHECK_OUT = "check out in peer.toml"


@dataclass(frozen=True)
class Site:
    """What one site knows before it joins: its settings, its keys, who meets whom, and what is certified.

    The plan of differential privacy follows when the model is known.
    """

    config: PeerConfig
    federation: FederationConfig
    me: int
    files: KeyFiles
    design: Design
    certificates: tuple[RunCertificate, ...]
    plan: Plan | None = None

    @classmethod
    def of(cls, config: PeerConfig) -> Self:
        """Read the federation's settings, make the site's folder, and check all that needs no network."""
        make_folder(config.out, CHECK_OUT, private=True)
        federation = FederationConfig.load(config.federation)
        me, files = config.position(federation), config.files()
        check_keys(files, config.name)
        check_settings(federation.training)
        check_privacy(federation.training, real=True)
        design = choose_design(federation.training)
        return cls(config, federation, me, files, design, pass_gate(federation.training, design, federation.missing))

    def chosen_by(self, common: Mapping[str, Any]) -> Site:
        """Return the site with what its app says about the common model; peers compare it when they meet."""
        if not common:
            return self
        with_common(self.federation.training, common)
        values = self.federation.model_dump(exclude_none=True)
        values["train"] = {**self.federation.train, **common}
        return replace(self, federation=FederationConfig.resolve(values))

    @property
    def plans(self) -> dict[str, Plan]:
        """The plan by the method of real peers, if there is one."""
        return {} if self.plan is None else {SECURED: self.plan}

    def planned(self, schema: Schema, samples: int | None = None) -> Site:
        """Return the site with the plan for a model, and a certificate that tells of it; refuse one over budget."""
        config = self.federation.training
        if config.privacy is None or self.plan is not None:
            return self
        agreed = config.privacy.records
        if agreed is not None and samples is not None and samples > agreed:
            raise ConfigError(f"{self.config.name} has {samples} records, but [privacy] says {agreed} of all sites")
        chosen = averaging_of(config, SECURED, self.design)
        plan = make_plan(config, chosen, size=schema.size, dtype=schema.dtype, records=None)
        made = replace(self, plan=plan)
        return replace(made, certificates=pass_gate(config, self.design, self.federation.missing, made.plans))


@dataclass(frozen=True)
class Membership:
    """A running peer, and the site that it is of."""

    site: Site
    peer: Peer
    bringing: Callable[[int], Bringing]
    optimizer: CommonOptimizer

    def model(self) -> Array | None:
        """Return the model that all peers hold, None if there is none yet."""
        held = self.peer.model()
        return None if held is None else self.optimizer.model(held)

    def average(self, vector: Array | None, round: int) -> Averaged:
        """Average with the others, or go on without what is lost; the outcome has the model, without its optimiser."""
        outcome = self.peer.forget(round) if vector is None else self.peer.average(vector, round)
        return replace(outcome, vector=self.optimizer.model(outcome.vector))

    def bring(self, w: Array, base: Array | None, weight: float = 1.0, residual: Array | None = None) -> Brought:
        """Return what this site brings to the average of the round after ``base``, the model; see `Bringing`."""
        federation = self.site.federation
        largest = federation.max_weight or 1.0
        if federation.training.weighted and not 0 <= weight <= largest:
            raise InvalidInputError(
                f"{self.site.config.name} has weight {weight:g}; weights must lie between 0 and max_weight = "
                f"{largest:g}"
            )
        # rounds differ in nothing but their partitions, which are no matter here; the first model has wider options
        how = self.bringing(0 if base is None else 1)
        start = base if federation.training.differences else None
        brought = how(w, start, draw=secret_uniform, weight=weight / largest, residual=residual)
        # before it is kept: what is kept for a round is brought again after a restart
        check_own(brought.vector, self.site.config.name)
        how.check(brought.vector)
        return brought


@contextmanager
def membership(
    site: Site,
    schema: Schema,
    *,
    buffers: tuple[slice, ...] = (),
    draws: Callable[[int, int], Draw] | None = None,
    tell: Tell = lambda _event: None,
) -> Iterator[Membership]:
    """Run a peer for a model of that schema, and leave with a word to the others.

    ``buffers`` are the parts that are no trained parameters; ``tell`` hears who is waited for; ``draws`` is for tests
    (see `PeerSettings`).
    """
    site = site.planned(schema)
    config, federation = site.config, site.federation
    optimizer = federation.training.common(buffers)
    averages = make_averages(federation, site.design, schema, optimizer, site.plan)
    genesis = federation.genesis(site.design.hash, schema.hash)
    told = {**federation.told, "design": site.design.hash, RUN: genesis.run, "model": str(schema)}
    # what differs between models, array by array
    told |= {f"model.{leaf.name}": f"{leaf.dtype}{list(leaf.shape)}" for leaf in schema.leaves[:MOST_ARRAYS]}
    if optimizer.kind != "none":
        # a site that takes buffers for parameters would compute another model
        told["buffers"] = str([(part.start, part.stop) for part in buffers])

    def say(told: CoreTell, names: Sequence[str]) -> None:
        if told.what == "waiting":
            tell(Waiting(tuple(names)))

    settings = PeerSettings(
        name=config.name,
        number=site.me,
        files=site.files,
        folder=config.state,
        genesis=genesis,
        rules=make_rules(federation, site.design, averages, site.plan),
        averages=averages,
        shared=told,
        listen=config.listens_at(federation),
        relays=federation.relay_members,
        proxy=config.proxy,
        # a peer that leaves for good may take the noise along without which the round is too dear
        check=lambda state: check_budget(site.plan, state),
        draws=draws,
    )
    with ExitStack() as stack:
        peer = stack.enter_context(Peer(settings, tell=say))
        if config.metrics:
            server = serve_metrics(config.metrics, lambda: peer_metrics(peer), lambda: peer.trouble)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        stack.enter_context(beating(config.out, lambda: live_of(peer)))
        how = bringing(federation.training, SECURED, site.design, schema.dtype, site.plan)
        yield Membership(site, peer, how, optimizer)


def check_keys(files: KeyFiles, name: str) -> str:
    """Refuse keys of somebody else, or that have expired; return how long they are valid."""
    info = check_pair(files)
    if info.name != name:
        raise ConfigError(f"{files.certificate} is for {info.name!r} and not for {name!r}")
    warning = info.expiry()
    if not info.valid():
        raise ConfigError(warning)
    if warning:
        log.warning("%s", warning)
    return warning or f"valid until {info.not_after:%Y-%m-%d}"
