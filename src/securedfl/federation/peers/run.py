"""One site's peer: joins the federation, trains and averages for the agreed rounds, and survives what can be survived.

After every round the average is on disk as the session's confirmed result, and before every average what this peer
trained, with its optimiser's state (`update`). A peer that is killed and started again goes on at the round in which
the others are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from securedfl.errors import SecuredFLError
from securedfl.federation.algorithm3 import Round, algorithm3
from securedfl.federation.gate import save_account
from securedfl.federation.peers.config import PeerConfig
from securedfl.federation.peers.events import Certified, Phase, Resumed, Status, Tell
from securedfl.federation.peers.learner import Learner, make_learner
from securedfl.federation.peers.membership import CHECK_OUT, Membership, Site, membership
from securedfl.federation.peers.telemetry import log_to
from securedfl.federation.peers.update import AGAIN, Update, load_update, save_update
from securedfl.federation.run_folder.files import METRICS
from securedfl.federation.run_folder.metrics import PeerRow, Tried, read_rows, to_line
from securedfl.learning.training.task import Score
from securedfl.network.core.rules import Averaged
from securedfl.network.core.session import Session
from securedfl.parameters import Array
from securedfl.protocols.steps import Draw
from securedfl.storage import Lines, make_folder, write_arrays

log = logging.getLogger("securedfl.peer")


def run_peer(path: Path, *, tell: Tell | None = None, draws: Callable[[int, int], Draw] | None = None) -> Path:
    """Train and average until the last round; return the folder with the results.

    Parameters
    ----------
    path
        Of ``peer.toml``.
    tell
        Told about progress.
    draws
        For tests: see `Session`.
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
        say(Certified(str(site.certificate.get("sentence", ""))))
        learner = make_learner(site.federation, config, path.resolve().parent)
        last = site.federation.training.rounds
        member = stack.enter_context(membership(site, learner.schema, last=last, draws=draws, tell=say))
        if tell is not None:
            stack.enter_context(_reporting(member.session, tell))
        stack.callback(_save_account, member)
        peer = RealPeer(member, learner, say)
        metrics = Lines(out / METRICS, AGAIN)
        stack.callback(metrics.close)
        for outcome in algorithm3(peer, rounds=last, after=peer.done):
            row = peer.row(outcome)
            metrics.append(to_line(row))
            log.info("round %d is done with %d members", row.round, len(row.members))
            say(row)
        write_arrays(out / "model.npz", learner.whole(member.result()), AGAIN)
        member.linger(last, site.federation.deadlines.absent)
    return out


class RealPeer:
    """One real peer of Algorithm 3: a learner, and its membership in a session. Starts where it and the others are.

    Attributes
    ----------
    done
        The round after which it goes on, None at the very beginning.
    """

    def __init__(self, member: Membership, learner: Learner, tell: Tell) -> None:
        self._member, self._learner, self._tell = member, learner, tell
        self._out, self._session = member.site.config.out, member.session
        if self._session.results.round < member.site.federation.training.rounds:
            self._session.catch_up()
        self.done = self._session.results.round if self._session.results.round >= 0 else None
        self._vector: Array = np.empty(0)
        if self.done is not None:
            self._vector = member.result()
            tell(Resumed(self.done))
        self._saved = load_update(self._out)
        self._residual: Array | None = None
        self._clipped = 0
        if self._saved is not None:
            learner.restore(self._saved.state)
            self._residual = self._saved.residual

    def initialise(self) -> None:
        """Begin with the learner's own parameters."""
        self._bring(0, lambda: (self._learner.initial(), None))

    def update(self, round: int) -> Sequence[float]:
        """Train from the last average; a peer that was killed during an average brings the same parameters again."""
        loss = self._bring(round, lambda: self._learner.update(self._vector, round))
        return () if loss is None else (loss,)

    def average(self, round: int) -> Averaged:
        """Average with the others; the outcome comes without the vector, so that it is in memory once."""
        self._tell(Phase("averaging", round))
        outcome, self._vector = self._member.average(self._vector, round)
        return replace(outcome, vector=np.empty(0))

    def evaluate(self) -> Sequence[Score]:
        """Score the average on this peer's own test data, if it has any."""
        score = self._learner.evaluate(self._vector)
        return () if score is None else (score,)

    def row(self, outcome: Round[Averaged]) -> PeerRow:
        """Return what this peer did in a round."""
        average, endpoint = outcome.average, self._session.endpoint
        score = asdict(outcome.scores[0]) if outcome.scores else {}
        return PeerRow(
            method="secured",
            round=average.round,
            train_loss=outcome.losses[0] if outcome.losses else None,
            train_seconds=outcome.train_seconds,
            average_seconds=average.seconds - average.waited,
            wait_seconds=average.waited,
            members=tuple(endpoint.roster[k].name for k in average.members),
            attempts=average.attempts,
            tried=tuple(Tried(t.epoch, t.attempt, t.members, t.opened) for t in average.tried),
            fetched=average.fetched,
            void=average.void,
            bytes_out=endpoint.bytes_out,
            bytes_in=endpoint.bytes_in,
            samples=self._learner.samples,
            clipped=self._clipped if self._member.site.federation.training.beyond == "clip" else None,
            **score,
        )

    def _bring(self, round: int, train: Callable[[], tuple[Array, float | None]]) -> float | None:
        """Train, and keep what came out of it before it is shared; return the loss."""
        self._session.board.say(to=(), phase="training", round=round, epoch=0)
        self._tell(Phase("training", round))
        # it is needed once, and not in memory any more
        saved, self._saved = self._saved, None
        if saved is None or saved.round != round:
            w, loss = train()
            brought = self._member.bring(w, round, self._learner.samples, self._residual)
            saved = Update(round, brought.vector, self._learner.state(), loss, brought.residual, brought.clipped)
            save_update(self._out, saved)
        self._vector, self._residual, self._clipped = saved.vector, saved.residual, saved.clipped
        return saved.loss


@contextmanager
def _reporting(session: Session, tell: Tell) -> Iterator[None]:
    """Tell once a second where this peer is and how many bytes it has moved."""
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(1.0):
            mine, end = session.board.mine, session.endpoint
            tell(Status(mine.phase, mine.round, end.bytes_in, end.bytes_out))

    thread = threading.Thread(target=report, name="securedfl-report", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def _save_account(member: Membership) -> None:
    """Leave certificate and ledger of what this peer took part in, also when the run ends early."""
    site = member.site
    try:
        rows = read_rows(site.config.out, PeerRow)
        save_account(site.config.out, site.federation.training, site.design, rows, site.federation.missing)
    except SecuredFLError as error:  # must not hide why the run ended
        log.warning("cannot write the ledger: %s", error)
