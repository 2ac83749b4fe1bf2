"""One site's peer: joins the federation, trains and averages for the agreed rounds, and survives what can be survived.

After every round the average is on disk, and before every average what this peer
trained, with its optimiser's state (`update`). A peer that is killed and started again goes on at the round in which
the others are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from securedfl.errors import InvalidInputError, MissingDependencyError
from securedfl.federation.algorithm3 import Round, algorithm3
from securedfl.federation.apps.learner import Learner
from securedfl.federation.budget.rules import BudgetSpentError, check_budget
from securedfl.federation.peers.account import leave_account, row_of
from securedfl.federation.peers.config import PeerConfig
from securedfl.federation.peers.events import Certified, Ended, Failed, Phase, Resumed, Status, Tell
from securedfl.federation.peers.learner import make_learner
from securedfl.federation.peers.membership import CHECK_OUT, Membership, Site, membership
from securedfl.federation.peers.rules import METHOD
from securedfl.federation.peers.telemetry import PHASES, log_to
from securedfl.federation.peers.update import AGAIN, Update, carried, find_update, forget_update, save_update
from securedfl.federation.run_folder.files import METRICS
from securedfl.federation.run_folder.metrics import PeerRow, to_line
from securedfl.federation.run_folder.model import MODEL, About, save_model
from securedfl.learning.training.task import Score
from securedfl.network.data.averages import Averaged, RunEndedError
from securedfl.network.peer import Peer
from securedfl.parameters import Array
from securedfl.privacy.run_certificate import told
from securedfl.protocols.steps import Draw
from securedfl.storage import Lines, make_folder, write_arrays

log = logging.getLogger("securedfl.peer")

T = TypeVar("T")


def run_peer(path: Path, *, tell: Tell | None = None, draws: Callable[[int, int], Draw] | None = None) -> Path:
    """Train and average until the last round; return the folder with the results.

    Parameters
    ----------
    path
        Of ``peer.toml``.
    tell
        Told about progress.
    draws
        For tests: see `PeerSettings`.
    """
    say = tell or (lambda _event: None)
    config = PeerConfig.load(path)
    out = config.out
    make_folder(out, CHECK_OUT, private=True)
    with ExitStack() as stack:
        handler = log_to(out / "peer.log")
        stack.callback(logging.getLogger("securedfl").removeHandler, handler)
        stack.callback(handler.close)
        site = Site.of(config)
        learner = make_learner(site.federation, config, path.resolve().parent)
        site = site.chosen_by(learner.common).planned(learner.schema, learner.samples)
        say(Certified(told(site.certificates)))
        member = stack.enter_context(membership(site, learner.schema, buffers=learner.buffers, draws=draws, tell=say))
        if tell is not None:
            stack.enter_context(_reporting(member.peer, tell))
        metrics = Lines(out / METRICS, AGAIN)
        # now, too: the folder of a peer that is killed gives a report of what it reached
        leave_account(member, learner)
        stack.callback(leave_account, member, learner)
        stack.callback(metrics.close)
        _take_part(member, learner, metrics, say)
    return out


def _take_part(member: Membership, learner: Learner, metrics: Lines, tell: Tell) -> None:
    """Train and average until all rounds are done and the others have the last model, or an operator ends the run."""
    peer = member.peer
    try:
        real = RealPeer(member, learner, tell)
        while True:
            for outcome in algorithm3(real, rounds=lambda: peer.progress.state.settings.rounds - 1, after=real.done):
                row = real.row(outcome)
                metrics.append(to_line(row))
                tell(row)
                real.done = row.round
            _leave_model(member, learner)
            peer.linger(peer.progress.state.settings.absent, unless=lambda now: now.todo is not None)
            if peer.progress.todo is None:
                if peer.progress.done:
                    forget_update(member.site.config.out)
                return
    except RunEndedError as end:
        log.info("%s", end)
        tell(Ended(str(end)))
        _leave_model(member, learner)
        if isinstance(end, BudgetSpentError):
            peer.linger(peer.progress.state.settings.absent)
        if peer.progress.state.ended:
            # those that are missing are told, too
            peer.linger(peer.progress.state.settings.absent)


def _leave_model(member: Membership, learner: Learner) -> None:
    model, out = member.model(), member.site.config.out
    if model is not None:
        whole = learner.whole(model)
        write_arrays(out / "model.npz", whole, AGAIN)
        with suppress(MissingDependencyError):  # peers without torch need not have it
            round = member.peer.progress.state.model.round
            save_model(out / MODEL, whole, About.of(method=METHOD, round=round, recipe=learner.recipe))


class RealPeer:
    """One real peer of Algorithm 3: a learner, and its membership in a federation. Starts where it and the others are.

    Attributes
    ----------
    done
        The round after which it goes on, None at the very beginning.
    """

    def __init__(self, member: Membership, learner: Learner, tell: Tell) -> None:
        self._member, self._learner, self._tell = member, learner, tell
        self._out = member.site.config.out
        task = member.peer.begin()
        next_round = member.peer.progress.state.round if task is None else task.round
        self.done = next_round - 1 if next_round else None
        self._model = member.model()
        self._vector: Array | None = None
        if self.done is not None:
            tell(Resumed(self.done))
        self._saved = find_update(self._out)
        self._residual: Array | None = None
        self._clipped = 0
        if self._saved is not None:
            # what an earlier round rounded off is not added: whether the rest of it was averaged is not known here
            learner.restore(self._saved.state)

    def initialise(self) -> None:
        """Begin with the learner's own parameters."""
        self._bring(0, lambda: (self._learner.initial(), None))

    def update(self, round: int) -> Sequence[float]:
        """Train from the last average; a peer that was killed during an average brings the same parameters again."""
        model = self._model
        check_budget(self._member.site.plan, self._member.peer.progress.state)
        if model is None:
            # the rounds so far were void
            self._bring(round, lambda: (self._learner.initial(), None))
            return ()
        loss = self._bring(round, lambda: self._trained(model, round))
        return () if loss is None else (loss,)

    def average(self, round: int) -> Averaged:
        """Average with the others; the outcome comes without the vector, so that it is in memory once."""
        self._tell(Phase("averaging", round))
        outcome = self._member.average(self._vector, round)
        self._vector, self._model = None, outcome.vector if outcome.vector.size else None
        self._residual = carried(self._residual, outcome, round, self._member.site.me)
        return replace(outcome, vector=np.empty(0))

    def evaluate(self) -> Sequence[Score]:
        """Score the average on this peer's own test data, if it has any."""
        model = self._model
        score = None if model is None else self._at_home("scoring", lambda: self._learner.evaluate(model))
        return () if score is None else (score,)

    def row(self, outcome: Round[Averaged]) -> PeerRow:
        """Return what this peer did in a round."""
        model = self._model
        score = asdict(outcome.scores[0]) if outcome.scores and outcome.scores[0] is not None else {}
        return row_of(
            self._member,
            outcome.average,
            train_loss=outcome.losses[0] if outcome.losses else None,
            train_seconds=outcome.train_seconds,
            samples=self._learner.samples,
            clipped=self._clipped,
            common=None if model is None else self._at_home("scoring", lambda: self._learner.evaluate_common(model)),
            **score,
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
        if (last := find_update(self._out)) is not None:
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

    def _bring(self, round: int, train: Callable[[], tuple[Array, float | None]]) -> float | None:
        """Train, and keep what came out of it before it is shared; return the loss."""
        self._tell(Phase("training", round))
        # it is needed once, and not in memory any more
        saved, self._saved = self._saved, None
        if saved is None or saved.round != round:
            task = self._member.peer.progress.todo
            if task is not None and task.again and task.round == round:
                log.error("the stored update of round %d is gone; nothing else can take its place", round)
                self._vector = None
                return None
            w, loss = train()
            brought = self._member.bring(w, self._model, self._learner.samples, self._residual)
            saved = Update(round, brought.vector, self._learner.state(), loss, brought.residual, brought.clipped)
            save_update(self._out, saved)
        self._vector, self._residual, self._clipped = saved.vector, saved.residual, saved.clipped
        return saved.loss


def _finite(w: Array, loss: float | None) -> tuple[Array, float | None]:
    if not np.isfinite(w).all():
        raise InvalidInputError("what was trained is not finite; take smaller steps")
    return w, loss


@contextmanager
def _reporting(peer: Peer, tell: Tell) -> Iterator[None]:
    """Tell once a second where this peer is and how many bytes it has moved."""
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(1.0):
            state = peer.progress.state
            tell(Status(PHASES[state.phase], state.round, *peer.links.traffic))

    thread = threading.Thread(target=report, name="securedfl-report", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)
