"""One site's peer: joins the federation, trains and averages for the agreed rounds, and survives what can be survived.

After every round the average is on disk, and before every average what this peer
trained, with its optimiser's state (`update`). A peer that is killed and started again goes on at the round in which
the others are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from securedfl.errors import InvalidInputError
from securedfl.federation.algorithm3 import Round, algorithm3
from securedfl.federation.budget.rules import BudgetSpentError
from securedfl.federation.peers.config import PeerConfig
from securedfl.federation.peers.events import AllDone, Certified, Ended, Failed, Ignored, Phase, Resumed, Staying, Tell
from securedfl.federation.peers.learner import Learner, make_learner
from securedfl.federation.peers.leaving import Books, leave_account, leave_model, open_rows
from securedfl.federation.peers.membership import Membership, membership
from securedfl.federation.peers.site import CHECK_OUT, Site
from securedfl.federation.peers.telemetry import logging_to, status_of
from securedfl.federation.peers.update import find_update, forget_update
from securedfl.federation.run_folder.files import PEER_LOG
from securedfl.federation.run_folder.live import every_second
from securedfl.federation.run_folder.metrics import PeerRow, to_line
from securedfl.learning.training.task import Score
from securedfl.network.data.averages import Averaged, RunEndedError
from securedfl.network.peer import Peer
from securedfl.network.progress import Progress
from securedfl.parameters import Array
from securedfl.privacy.run_certificate import told
from securedfl.storage import Lines, make_folder

log = logging.getLogger("securedfl.peer")

UNDECIDED = (
    "the change that was asked for at this site is not decided, because too few others were there; it stands, and is "
    "asked for again when this peer is started again"
)

T = TypeVar("T")


def run_peer(path: Path, tell: Tell) -> Path:
    """Train and average until the last round; return the folder with the results.

    Parameters
    ----------
    path
        Of ``peer.toml``.
    tell
        Told about progress.
    """
    config = PeerConfig.load(path)
    out = config.out
    make_folder(out, CHECK_OUT, private=True)
    with ExitStack() as stack:
        stack.enter_context(logging_to(out / PEER_LOG))
        site = Site.of(config)
        learner = make_learner(site.federation, config, path.resolve().parent)
        schema, buffers = learner.trainer.schema, learner.trainer.buffers
        site = site.chosen_by(learner.common, learner.coding).planned(schema, learner.samples.train)
        member = stack.enter_context(membership(site, schema, buffers, tell))
        stack.enter_context(every_second(lambda: tell(status_of(member.peer))))
        metrics, trouble = open_rows(out)
        if trouble:
            tell(Ignored(trouble))
        books = Books(member, learner)
        tell(Certified(told(books.keep())))
        stack.callback(leave_account, member, learner)
        stack.callback(metrics.close)
        _take_part(member, learner, metrics, books, tell)
    return out


def _take_part(member: Membership, learner: Learner, metrics: Lines, books: Books, tell: Tell) -> None:
    """Train and average until all rounds are done and the others have the last model, or an operator ends the run."""
    peer = member.peer
    try:
        real = RealPeer(member, learner, tell)
        _tell_where(member, real.done, tell)
        while True:
            for outcome in algorithm3(real, rounds=lambda: peer.progress.state.settings.rounds - 1, after=real.done):
                row = real.row(outcome)
                metrics.append(to_line(row))
                tell(row)
                books.look()
                real.done = row.round
            leave_model(member, learner)
            _stay(peer, tell, unless=lambda now: now.todo is not None)
            if peer.progress.todo is None:
                if peer.progress.done:
                    forget_update(member.site.config.out, peer.progress.state.round)
                if member.site.me in peer.progress.asking:
                    tell(Ignored(UNDECIDED))
                return
    except RunEndedError as end:
        log.info("%s", text := f"{end}{_model_of(peer.progress)}")
        tell(Ended(text))
        leave_model(member, learner)
        if isinstance(end, BudgetSpentError) or peer.progress.state.ended:
            # those that are missing are told, too
            _stay(peer, tell)


def _model_of(now: Progress) -> str:
    """Return of which round the model is that a run leaves which ends early."""
    last = now.state.settings.rounds - 1
    made = 0 <= now.applied.round < last
    return f"; the model here is that of round {now.applied.round} of {last}" if made else ""


def _stay(peer: Peer, tell: Tell, unless: Callable[[Progress], bool] = lambda _now: False) -> None:
    """Stay for those that lack the end of the log or the last model, and say so; whoever is tired of it may leave."""
    absent = peer.progress.state.settings.absent
    try:
        peer.linger(absent, unless, lambda lacking, asking: tell(Staying(lacking, absent, asking)))
    except KeyboardInterrupt:
        # nothing is left to do here, unless rounds were added in this moment
        if unless(peer.progress):
            raise


def _tell_where(member: Membership, done: int | None, tell: Tell) -> None:
    """Tell after which round this peer goes on, if it does, and what of its files the run does not heed."""
    state, site = member.peer.progress.state, member.site
    if done is not None:
        tell(AllDone(done) if state.over else Resumed(done))
    wanted, last = site.federation.training.rounds, state.settings.rounds - 1
    if wanted > last:
        reason = (
            f"{site.config.federation} says rounds = {wanted}, but this run goes to round {last}, as its log says: "
            f"`securedfl extend PEER.toml --rounds {wanted}` changes that for all sites"
        )
        log.warning("%s", reason)
        tell(Ignored(reason))


class RealPeer:
    """One real peer of Algorithm 3: a learner, and its membership in a federation. Starts where it and the others are.

    Attributes
    ----------
    done
        The round after which it goes on, None at the very beginning.
    """

    def __init__(self, member: Membership, learner: Learner, tell: Tell) -> None:
        self._member, self._learner, self._tell = member, learner, tell
        kept, next_round = member.kept, member.begin()
        self.done = next_round - 1 if next_round else None
        if kept is not None:
            learner.restore(kept.state)

    def initialise(self) -> None:
        """Begin with the learner's own parameters."""
        self.update(0)

    def update(self, round: int) -> Sequence[float]:
        """Train from the last average; a peer that was killed during an average brings the same parameters again."""
        self._tell(Phase("training", round))
        # before the first average there is none, nor after rounds that were all void
        model = self._member.base

        def make() -> tuple[Array, Any, float | None]:
            w, loss = (self._learner.initial(), None) if model is None else self._trained(model, round)
            return w, self._learner.state(), loss

        update = self._member.bring(round, self._learner.samples.train, make)
        return () if update is None or update.loss is None else (update.loss,)

    def average(self, round: int) -> Averaged:
        """Average with the others; the outcome comes without the vector, so that it is in memory once."""
        self._tell(Phase("averaging", round))
        return replace(self._member.average(round), vector=np.empty(0))

    def evaluate(self) -> Sequence[Score]:
        """Score the average on this peer's own test data, if it has any."""
        model = self._member.base
        score = None if model is None else self._at_home("scoring", lambda: self._learner.evaluate(model))
        return () if score is None else (score,)

    def row(self, outcome: Round[Averaged]) -> PeerRow:
        """Return what this peer did in a round."""
        model, score = self._member.base, next(iter(outcome.scores), None)
        return replace(
            self._member.row(outcome.average, outcome.train_seconds),
            train_loss=next(iter(outcome.losses), None),
            samples=self._learner.samples.train,
            common=None if model is None else self._at_home("scoring", lambda: self._learner.evaluate_common(model)),
            **({} if score is None else asdict(score)),
        )

    def _trained(self, model: Array, round: int) -> tuple[Array, float | None]:
        """Train; with noise in the average, a site whose training fails brings nothing but noise.

        Others would learn about its data from its absence. Where the noise is in the steps themselves, what fails has
        noise in it already.
        """
        plan = self._member.site.plan
        if plan is None or not plan.in_average:
            return self._learner.update(model, round)
        found = self._at_home(f"training in round {round}", lambda: _finite(*self._learner.update(model, round)))
        if found is not None:
            return found
        if (last := find_update(self._member.site.config.out)) is not None:
            # what an optimiser keeps may not be finite either
            self._learner.restore(last.state)
        return np.zeros_like(model) if plan.brings_steps else model.copy(), None

    def _at_home(self, what: str, work: Callable[[], T]) -> T | None:
        """Return what work gives; with differential privacy, what fails in it is told at home, and None returned."""
        if self._member.site.plan is None:
            return work()
        try:
            return work()
        except Exception as error:  # whatever an app raises may depend on its data
            reason = f"{what} failed at this site: {type(error).__name__}: {error}; the others are not told"
            log.exception("%s", reason)
            self._tell(Failed(reason))
            return None


def _finite(w: Array, loss: float | None) -> tuple[Array, float | None]:
    if not np.isfinite(w).all():
        raise InvalidInputError("what was trained is not finite; take smaller steps")
    return w, loss
