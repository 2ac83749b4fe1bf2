"""One site's peer: joins the federation, trains and averages for the agreed rounds, and survives what can be survived.

After every round the average is on disk as the session's confirmed result, and before every average what this peer
trained, with its optimiser's state (`peer_checkpoint`). A peer that is killed and started again goes on at the round in
which the others are.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from securedfl.designs import Design
from securedfl.errors import ConfigError, InvalidInputError, RunFolderError, SecuredFLError
from securedfl.federation.certify import certify, choose_design, save
from securedfl.federation.files import cannot_write, replacing, write_text
from securedfl.federation.peers.checkpoint import AGAIN, Update, load_update, save_update
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.rules import make_rules
from securedfl.federation.peers.telemetry import log_to, serve_metrics
from securedfl.federation.run_folder import METRICS, read_rows
from securedfl.network.core.rules import Averaged
from securedfl.network.core.session import Session
from securedfl.network.wire.endpoint import Endpoint
from securedfl.network.wire.keys import check_pair
from securedfl.parameters import Schema, remove_weight, weigh
from securedfl.protocols.steps import Array, Draw

log = logging.getLogger("securedfl.peer")

Tell = Callable[[dict[str, Any]], None]
"""Told what happens, as plain values with an ``event``."""


@dataclass(frozen=True)
class Membership:
    """An open session with what it was made from."""

    federation: FederationConfig
    config: PeerConfig
    design: Design
    certificate: dict[str, Any]
    session: Session

    def average(self, vector: Array, round: int, samples: float = 1.0) -> tuple[Averaged, Array]:
        """Average a flat vector, weighted if the federation is; return the outcome and the mean."""
        if not self.federation.training.weighted:
            outcome = self.session.average(vector, round)
            return outcome, outcome.vector
        largest = self.federation.max_weight or 1.0
        if not 0 <= samples <= largest:
            raise InvalidInputError(
                f"{self.config.name} has weight {samples:g}; weights must lie between 0 and max_weight = {largest:g}"
            )
        outcome = self.session.average(weigh(vector, samples / largest), round)
        return outcome, remove_weight(outcome.vector)

    def result(self) -> Array:
        """Return the last confirmed average."""
        vector = self.session.results.load()
        return remove_weight(vector) if self.federation.training.weighted else vector


@contextmanager
def membership(
    path: Path,
    schema_of: Callable[[FederationConfig, PeerConfig], Schema],
    *,
    last: Callable[[FederationConfig], int] | None = None,
    draws: Callable[[int, int], Draw] | None = None,
    tell: Tell | None = None,
) -> Iterator[Membership]:
    """Open a session as ``peer.toml`` says, after all checks that need no network.

    Parameters
    ----------
    path
        Of ``peer.toml``.
    schema_of
        Gives the model's schema, once the settings are known.
    last
        Gives the last round, if there is one: a peer that holds its result already has nobody to wait for.
    draws
        For tests: see `Session`.
    tell
        Told who is missing at the start, and the certificate.
    """
    config = PeerConfig.load(path)
    federation = FederationConfig.load(config.federation)
    me, files = config.position(federation), config.files(insecure=federation.insecure)
    if files is not None:
        info = check_pair(files)
        if info.name != config.name or info.fingerprint != federation.members[me].fingerprint:
            raise ConfigError(
                f"{files.certificate} is for {info.name!r} with fingerprint {info.fingerprint[:16]}..., but the roster "
                f"expects {config.name!r} with {federation.members[me].fingerprint[:16]}..."
            )
        warning = info.expiry()
        if not info.valid():
            raise ConfigError(warning)
        if warning:
            log.warning("%s", warning)
    say = tell or (lambda _event: None)
    design = choose_design(federation.training)
    certificate = certify(federation.training, design)
    say({"event": "certificate", "sentence": certificate.get("sentence", "")})
    schema = schema_of(federation, config)
    rules = make_rules(federation, design, schema)
    identity = {"configuration": federation.hash, "design": design.hash, "model": schema.hash}
    _claim(config.out, identity)
    endpoint = Endpoint(federation.members, me, files, listen=config.listen, insecure=federation.insecure)
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
            server = serve_metrics(config.metrics, lambda: _metrics(session))
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        if last is None or session.results.round < last(federation):
            session.join(lambda missing: say({"event": "waiting", "missing": missing}))
        try:
            yield Membership(federation, config, design, certificate, session)
        except BaseException as error:  # Ctrl-C too: the others need not wait for silence
            if session.board.mine.phase != "left":
                session.leave(f"{config.name} stopped: {type(error).__name__}")
            raise
        session.leave("")


def run_peer(
    path: Path, *, tell: Tell | None = None, draws: Callable[[int, int], Draw] | None = None
) -> Path:
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
    from securedfl.federation.peers.learner import Learner, make_learner

    learners: list[Learner] = []

    def schema_of(federation: FederationConfig, config: PeerConfig) -> Schema:
        _make(config.out)
        learners.append(make_learner(federation, config, path.resolve().parent))
        return learners[0].schema

    say = tell or (lambda _event: None)
    out = PeerConfig.load(path).out
    _make(out)
    with ExitStack() as stack:
        handler = log_to(out / "peer.log")
        stack.callback(logging.getLogger("securedfl").removeHandler, handler)
        stack.callback(handler.close)
        member = stack.enter_context(
            membership(path, schema_of, last=lambda f: f.training.rounds, draws=draws, tell=say)
        )
        if tell is not None:
            stack.enter_context(_reporting(member.session, tell))
        stack.callback(_save_account, member)
        _rounds(member, learners[0], say)
        _save_model(out, learners[0].schema, member.result())
        linger(member, member.federation.training.rounds, member.federation.deadlines.absent)
    return out


def _rounds(member: Membership, learner: Any, say: Tell) -> None:
    """Run Algorithm 3 from where this peer and the others are to the last round."""
    session, out = member.session, member.config.out
    last = member.federation.training.rounds
    if session.results.round < last:
        session.catch_up()
    done, saved = session.results.round, load_update(out)
    if done >= 0:
        vector = member.result()
        say({"event": "resumed", "round": done})
    if saved is not None:
        learner.restore(saved.state)
    while done < last:
        round, started = done + 1, time.monotonic()
        session.board.say(to=(), phase="training", round=round, epoch=0)
        say({"event": "phase", "phase": "training", "round": round})
        if saved is not None and saved.round == round:
            own, loss = saved.vector, saved.loss  # killed during this average: the same parameters again
        else:
            own, loss = learner.update(vector, round) if round else (learner.initial(), None)
            save_update(out, Update(round, own, learner.state(), loss))
        saved, vector = (
            None,
            own,
        )  # neither the update on disk nor the model before it is needed in memory any more
        trained = time.monotonic()
        say({"event": "phase", "phase": "averaging", "round": round})
        outcome, vector = member.average(own, round, learner.samples)
        done = outcome.round
        del own
        row = {
            "method": "secured",
            "round": done,
            "train_loss": loss,
            "train_seconds": trained - started,
            "average_seconds": outcome.seconds - outcome.waited,
            "wait_seconds": outcome.waited,
            "members": [session.endpoint.roster[k].name for k in outcome.members],
            "attempts": outcome.attempts,
            "tried": [asdict(tried) for tried in outcome.tried],
            "fetched": outcome.fetched,
            "void": outcome.void,
            "bytes_out": session.endpoint.bytes_out,
            "bytes_in": session.endpoint.bytes_in,
            "samples": learner.samples,
            **_score(learner.evaluate(vector)),
        }
        with (out / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        log.info("round %d is done with %d members", done, len(outcome.members))
        say({"event": "round", **row})


@contextmanager
def _reporting(session: Session, tell: Tell) -> Iterator[None]:
    """Tell once a second where this peer is and how many bytes it has moved."""
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(1.0):
            mine, end = session.board.mine, session.endpoint
            tell(
                {
                    "event": "status",
                    "phase": mine.phase,
                    "round": mine.round,
                    "bytes_in": end.bytes_in,
                    "bytes_out": end.bytes_out,
                }
            )

    thread = threading.Thread(target=report, name="securedfl-report", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def _save_account(member: Membership) -> None:
    """Leave certificate and ledger of what this peer took part in, also when the run ends early."""
    out, training = member.config.out, member.federation.training
    try:
        save(out, training, member.design, read_rows(out))
    except SecuredFLError as error:  # must not hide why the run ended
        log.warning("cannot write the ledger: %s", error)


def _score(score: Any) -> dict[str, Any]:
    if score is None:
        return {}
    return {"correct": score.correct, "loss": score.loss, "count": score.count}


def linger(member: Membership, last: int, absent: float) -> None:
    """Stay until the others have finished too: they may still need this peer's result or vote.

    Parameters
    ----------
    member
        This peer.
    last
        The last round.
    absent
        Seconds for those that are gone, so that they too can come back and fetch the last result.
    """
    board, everyone = member.session.board, range(len(member.federation.members))
    board.say(finished=member.session.results.round)  # at once: the others wait to hear just that

    def all_done() -> bool:
        return all(board.status(k).finished >= last or board.status(k).phase == "left" for k in everyone)

    def nobody_left_to_wait_for() -> bool:
        return all(board.status(k).finished >= last or not board.present(k) for k in everyone)

    if not board.wait(all_done, absent):
        board.wait(nobody_left_to_wait_for, member.federation.deadlines.average)


def _claim(out: Path, identity: dict[str, str]) -> None:
    """Refuse a folder that holds the state of another federation."""
    _make(out)
    path = out / "identity.json"
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found != identity:
            raise RunFolderError(
                f"{out} holds the state of another federation, design or model; choose another out in peer.toml"
            )
    else:
        write_text(path, json.dumps(identity), "check out in peer.toml")


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error, "check out in peer.toml") from None


def _save_model(out: Path, schema: Schema, vector: Array) -> None:
    """Write the final model with its parameters by name."""
    arrays = {leaf.name or "parameters": np.zeros(leaf.shape, dtype=leaf.dtype) for leaf in schema.leaves}
    tree = schema.unflatten(vector, arrays)
    with replacing(out / "model.npz", AGAIN) as temporary, temporary.open("wb") as file:
        np.savez(file, **tree)


def _metrics(session: Session) -> dict[str, Any]:
    board, end = session.board, session.endpoint
    return {
        "round": board.mine.round,
        "finished_round": board.mine.finished,
        "peers_present": sum(board.present(peer) for peer in range(session.n)),
        "peers": session.n,
        "sent_bytes_total": end.bytes_out,
        "received_bytes_total": end.bytes_in,
        "open_streams": end.open_streams,
        "refused_total": dict(end.counters),
    }
