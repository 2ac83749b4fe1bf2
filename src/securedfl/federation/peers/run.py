"""One site's peer: joins the federation, trains and averages for the agreed rounds, and survives what can be survived.

After every round the average is on disk, and before every average what this peer
trained, with its optimiser's state (`update`). A peer that is killed and started again goes on at the round in which
the others are.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from securedfl.errors import InvalidInputError, MissingDependencyError, SecuredFLError
from securedfl.federation.algorithm3 import Round, algorithm3
from securedfl.federation.apps.learner import Learner
from securedfl.federation.budget.account import epsilon_by_round
from securedfl.federation.budget.rules import BudgetSpentError
from securedfl.federation.gate import save_account
from securedfl.federation.methods import SECURED
from securedfl.federation.peers.config import NOT_SHARED, PeerConfig
from securedfl.federation.peers.events import Certified, Ended, Failed, Phase, Resumed, Tell
from securedfl.federation.peers.learner import make_learner
from securedfl.federation.peers.membership import CHECK_OUT, Membership, Site, membership
from securedfl.federation.peers.telemetry import log_to, status_of
from securedfl.federation.peers.update import AGAIN, Bringer, find_update, forget_update
from securedfl.federation.run_folder.files import DESIGN, METRICS
from securedfl.federation.run_folder.live import every_second
from securedfl.federation.run_folder.metrics import PeerRow, Row, read_rows, to_line
from securedfl.federation.run_folder.model import MODEL, About, save_model
from securedfl.federation.run_folder.summary import Data, Samples, Summary, write_data, write_summary
from securedfl.learning.training.task import Score
from securedfl.network.data.averages import Averaged, RunEndedError
from securedfl.network.peer import Peer
from securedfl.network.words import names_of
from securedfl.parameters import Array
from securedfl.privacy.budget.plan import Plan
from securedfl.privacy.run_certificate import told
from securedfl.protocols.steps import Draw
from securedfl.storage import Lines, make_folder, replacing, write_arrays

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
            stack.enter_context(every_second(lambda: tell(status_of(member.peer))))
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
            save_model(out / MODEL, whole, About.of(method=SECURED, round=round, recipe=learner.recipe))


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
        last = find_update(self._out)
        self._bringer = Bringer(member, last)
        next_round = self._bringer.begin()
        self.done = next_round - 1 if next_round else None
        if self.done is not None:
            tell(Resumed(self.done))
        self._clipped = 0
        if last is not None:
            learner.restore(last.state)

    def initialise(self) -> None:
        """Begin with the learner's own parameters."""
        self._bring(0, lambda: (self._learner.initial(), None))

    def update(self, round: int) -> Sequence[float]:
        """Train from the last average; a peer that was killed during an average brings the same parameters again."""
        model = self._bringer.base
        if model is None:
            # the rounds so far were void
            self._bring(round, lambda: (self._learner.initial(), None))
            return ()
        loss = self._bring(round, lambda: self._trained(model, round))
        return () if loss is None else (loss,)

    def average(self, round: int) -> Averaged:
        """Average with the others; the outcome comes without the vector, so that it is in memory once."""
        self._tell(Phase("averaging", round))
        return replace(self._bringer.average(round), vector=np.empty(0))

    def evaluate(self) -> Sequence[Score]:
        """Score the average on this peer's own test data, if it has any."""
        model = self._bringer.base
        score = None if model is None else self._at_home("scoring", lambda: self._learner.evaluate(model))
        return () if score is None else (score,)

    def row(self, outcome: Round[Averaged]) -> PeerRow:
        """Return what this peer did in a round."""
        model = self._bringer.base
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
        """Train, unless that was done before a kill; return the loss."""
        self._tell(Phase("training", round))

        def make() -> tuple[Array, Any, float | None]:
            w, loss = train()
            return w, self._learner.state(), loss

        update = self._bringer.bring(round, self._learner.samples, make)
        self._clipped = 0 if update is None else update.clipped
        return None if update is None else update.loss


def _finite(w: Array, loss: float | None) -> tuple[Array, float | None]:
    if not np.isfinite(w).all():
        raise InvalidInputError("what was trained is not finite; take smaller steps")
    return w, loss


def row_of(member: Membership, average: Averaged, *, clipped: int, **known: Any) -> PeerRow:
    """Return what this peer did in a round: what the average tells, how much was cut, and what else is known."""
    peer, plan = member.peer, member.site.plan
    clips = plan is not None or member.site.federation.training.beyond == "clip"
    bytes_in, bytes_out = peer.links.traffic
    return PeerRow(
        method=SECURED,
        round=average.round,
        average_seconds=average.seconds - average.waited,
        wait_seconds=average.waited,
        members=names_of(average.members, peer.progress.state.roster),
        attempts=average.attempts,
        tried=average.tried,
        fetched=average.fetched,
        void=average.void,
        bytes_out=bytes_out,
        bytes_in=bytes_in,
        clipped=clipped if clips else None,
        epsilon=None if plan is None else _spent(plan, peer, average.round),
        **known,
    )


def _spent(plan: Plan, peer: Peer, round: int) -> float:
    """Return epsilon after a round, from all attempts that the log tells of."""
    opened = {r: [t.members for t in tried if t.opened] for r, tried in peer.attempts.items() if r <= round}
    return max(epsilon_by_round(plan, opened).values(), default=0.0)


def _data_of(learner: Learner, name: str, last: PeerRow | None = None) -> Data:
    """Return what a site holds, in numbers; how many samples an app tests on is known when it has scored."""
    held = replace(learner.held, name=name)
    if last is not None and held.test is None:
        held = replace(held, test=last.count)
    common = None if last is None or last.common is None else last.common.count
    return Data(peers=(held,), common=common, averaged=learner.schema.size)


def leave_account(member: Membership, learner: Learner | None = None) -> None:
    """Leave certificate, ledger of all attempts that the log tells of, and summary, also when the run ends early.

    Without a learner nothing is known of the site's data.
    """
    site, state, attempts = member.site, member.peer.progress.state, member.peer.attempts
    config, design = site.federation.training, site.design
    most = 1 + max((peer for tried in attempts.values() for one in tried for peer in one.members), default=0)
    try:
        if most > config.peers:
            # the ledger is of all peers that ever took part
            design = member.bringing(0).averaging.among(most).design
            config = config.model_copy(update={"peers": most})
        rows = [Row(method=SECURED, round=round, tried=tried) for round, tried in attempts.items()]
        # an operator may have changed the last round
        now = config.model_copy(update={"rounds": state.settings.rounds - 1})
        certificates = save_account(site.config.out, now, design, rows, site.federation.missing, site.plans)
        done = read_rows(site.config.out, Row)
        last = next(reversed(read_rows(site.config.out, PeerRow)), None)
        samples = Samples()
        if learner is not None:
            test = learner.held.test if last is None else last.count
            samples = Samples(train=learner.samples, test=test or 0)
            write_data(site.config.out, _data_of(learner, site.config.name, last))
        with replacing(site.config.out / DESIGN) as temporary:
            design.save(temporary)
        summary = Summary.of(
            site.config.out,
            now,
            design,
            done,
            certificates,
            samples=samples,
            finished=state.round >= state.settings.rounds,
        )
        summary = replace(
            summary,
            dataset=site.federation.entry or config.dataset,
            peers=len(state.roster),
            config={key: value for key, value in config.to_dict().items() if key not in NOT_SHARED},
            site=site.config.name,
            roster={str(peer.number): peer.name for peer in state.roster},
        )
        write_summary(site.config.out, summary)
    except SecuredFLError as error:  # must not hide why the run ended
        log.warning("cannot write what the run gave: %s", error)
