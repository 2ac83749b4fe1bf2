"""A running peer: what its site brings to averages, and what comes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from securedfl.federation.bringing import Bringing, Brought
from securedfl.federation.budget.account import epsilon_by_round
from securedfl.federation.budget.rules import check_budget
from securedfl.federation.methods import SECURED, bringing
from securedfl.federation.peers.begun import naming_changes
from securedfl.federation.peers.events import Back, Lost, Tell, Unfit, Waiting
from securedfl.federation.peers.rules import make_averages, make_rules
from securedfl.federation.peers.site import Site
from securedfl.federation.peers.telemetry import live_of, peer_metrics, serve_metrics
from securedfl.federation.peers.update import StoredUpdate, carried, find_update, save_update
from securedfl.federation.run_folder.live import beating
from securedfl.federation.run_folder.metrics import PeerRow
from securedfl.learning.training.common_optimizer import CommonOptimizer
from securedfl.network.core.events import Tell as CoreTell
from securedfl.network.data.averages import Averaged, check_own
from securedfl.network.letters import RUN
from securedfl.network.peer import Peer
from securedfl.network.progress import PeerSettings
from securedfl.network.words import names_of
from securedfl.parameters import Array, Schema
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.randomness import secret_uniform

log = logging.getLogger("securedfl.peer")

MOST_ARRAYS = 200
"""Arrays of a model that are compared one by one when peers meet; the hash is of all."""
TOLD: dict[str, type[Waiting | Lost | Back]] = {"waiting": Waiting, "lost": Lost, "back": Back}
"""What the core tells that people see, and not only the log; each of them names peers."""


class Membership:
    """A running ``peer``, and what its ``site`` brings to averages: to each one update, the very same after a kill.

    ``base`` is the model that all peers hold; None before the first average. ``kept`` is the update for the average at
    hand, which is on disk; before the first one, what was found there.
    """

    def __init__(self, site: Site, peer: Peer, bringing: Callable[[int], Bringing], optimizer: CommonOptimizer) -> None:
        self.site, self.peer, self.bringing, self._optimizer = site, peer, bringing, optimizer
        self.base: Array | None = None
        self.kept = find_update(site.config.out)
        # what an earlier round rounded off is not added: whether the rest of it was averaged is not known here
        self._residual: Array | None = None
        self._clipped = 0

    def begin(self) -> int:
        """Wait until there is a round to train for, and return it; the one after the last if all are done."""
        task = self.peer.begin()
        self.base = self.model()
        return self.peer.progress.state.round if task is None else task.round

    def model(self) -> Array | None:
        """Return the model that all peers hold by now, None if there is none yet."""
        common = self.peer.model()
        return None if common is None else self._optimizer.model(common)

    def bring(
        self, round: int, weight: float, make: Callable[[], tuple[Array, Any, float | None]]
    ) -> StoredUpdate | None:
        """Return what is averaged in a round, which is on disk then: what is made now, or what was kept before a kill.

        None if that is lost: others may have seen shares of it, so nothing else can take its place.

        Parameters
        ----------
        round, weight
            Which average it is for, and how much this site counts.
        make
            Gives the parameters, what is kept besides, and the mean loss, as `StoredUpdate` has them.
        """
        progress = self.peer.progress
        check_budget(self.site.plan, progress.state)
        if self.kept is None or self.kept.round != round or not self.kept.vector.size:
            self.kept = None
            if progress.todo is not None and progress.todo.again and progress.todo.round == round:
                log.error("the stored update of round %d is gone; nothing else can take its place", round)
            else:
                w, state, loss = make()
                brought = self._brought(w, weight)
                self.kept = StoredUpdate(round, brought.vector, state, loss, brought.residual, brought.clipped)
                save_update(self.site.config.out, self.kept)
        self._clipped = 0 if self.kept is None else self.kept.clipped
        return self.kept

    def _brought(self, w: Array, weight: float) -> Brought:
        """Return what this site brings to the average of the round after `base`; see `Bringing`."""
        federation, name = self.site.federation, self.site.config.name
        federation.check_weight(name, weight)
        # rounds differ in nothing but their partitions, which are no matter here; the first model has wider options
        how = self.bringing(0 if self.base is None else 1)
        start = self.base if federation.training.differences else None
        brought = how(
            w, start, draw=secret_uniform, weight=weight / (federation.max_weight or 1.0), residual=self._residual
        )
        # before it is kept: what is kept for a round is brought again after a restart
        check_own(brought.vector, name)
        how.check(brought.vector)
        return brought

    def average(self, round: int) -> Averaged:
        """Average what was brought to a round, or go on without it if it is lost; `base` is the outcome then."""
        brought = self.kept
        outcome = self.peer.forget(round) if brought is None else self.peer.average(brought.vector, round)
        # not before: after an error in there, or if the run was cut short before this round, the same is brought again
        if outcome.round >= round:
            self.kept = None
        # the model, without its optimiser
        outcome = replace(outcome, vector=self._optimizer.model(outcome.vector))
        self.base = outcome.vector if outcome.vector.size else None
        self._residual = None if brought is None else carried(brought.residual, outcome, round, self.site.me)
        return outcome

    def row(self, outcome: Averaged, train_seconds: float) -> PeerRow:
        """Return what the average of a round tells, and how much was cut; of training no more than its time."""
        plan = self.site.plan
        clips = plan is not None or self.site.federation.training.beyond == "clip"
        bytes_in, bytes_out = self.peer.links.traffic
        return PeerRow(
            method=SECURED,
            round=outcome.round,
            train_loss=None,
            train_seconds=train_seconds,
            average_seconds=outcome.seconds - outcome.waited,
            wait_seconds=outcome.waited,
            members=names_of(outcome.members, self.peer.progress.state.roster),
            attempts=outcome.attempts,
            tried=outcome.tried,
            fetched=outcome.fetched,
            void=outcome.void,
            bytes_out=bytes_out,
            bytes_in=bytes_in,
            samples=None,
            clipped=self._clipped if clips else None,
            epsilon=None if plan is None else self._spent(plan, outcome.round),
        )

    def _spent(self, plan: Plan, round: int) -> float:
        """Return epsilon after a round, from all attempts that the log tells of."""
        opened = {r: [t.members for t in tried if t.opened] for r, tried in self.peer.attempts.items() if r <= round}
        return max(epsilon_by_round(plan, opened).values(), default=0.0)


@contextmanager
def membership(
    site: Site, schema: Schema, buffers: tuple[slice, ...], tell: Tell = lambda _event: None
) -> Iterator[Membership]:
    """Run a peer for a model of that schema, and leave with a word to the others.

    ``buffers`` are the parts that are no trained parameters; ``tell`` hears who is waited for.
    """
    site = site.planned(schema)
    config, federation, design = site.config, site.federation, site.federation.design
    optimizer = federation.training.common(buffers)
    averages = make_averages(federation, design, schema, optimizer, site.plan)
    coding = {"coding": site.coding} if site.coding else {}
    genesis = site.genesis(schema)
    told = {**federation.told, **coding, "design": design.hash, RUN: genesis.run, "model": str(schema)}
    # what differs between models, array by array
    told |= {f"model.{leaf.name}": f"{leaf.dtype}{list(leaf.shape)}" for leaf in schema.leaves[:MOST_ARRAYS]}
    if optimizer.kind != "none":
        # a site that takes buffers for parameters would compute another model
        told["buffers"] = str([(part.start, part.stop) for part in buffers])

    def say(told: CoreTell, names: Sequence[str]) -> None:
        if told.what in TOLD:
            tell(TOLD[told.what](tuple(names)))
        elif told.what == "unfit":
            tell(Unfit(names[0], told.detail))

    settings = PeerSettings(
        name=config.name,
        number=site.me,
        files=config.files(),
        folder=config.state,
        genesis=genesis,
        rules=make_rules(federation, design, averages, site.plan),
        averages=averages,
        shared=told,
        listen=config.listens_at(federation),
        relays=federation.relay_roster,
        proxy=config.proxy,
        renewed=config.renewed,
        # a peer that leaves for good may take the noise along without which the round is too dear
        check=lambda state: check_budget(site.plan, state),
    )
    with ExitStack() as stack:
        with naming_changes(config.out, federation.training):
            peer = stack.enter_context(Peer(settings, tell=say))
        if config.metrics:
            server = serve_metrics(config.metrics, lambda: peer_metrics(peer), lambda: peer.trouble)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        stack.enter_context(beating(config.out, lambda: live_of(peer)))
        how = bringing(federation.training, SECURED, design, schema.dtype, site.plan)
        yield Membership(site, peer, how, optimizer)
