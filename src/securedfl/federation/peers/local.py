"""A local federation: keys, settings and one peer process per site on loopback, and one run folder of it all."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from securedfl.designs import Design
from securedfl.errors import PeerLostError, SecuredFLError
from securedfl.federation.budget.account import last_round
from securedfl.federation.budget.planning import check_privacy
from securedfl.federation.budget.task import planned
from securedfl.federation.config import TrainConfig
from securedfl.federation.gate import pass_gate
from securedfl.federation.methods import choose_design
from securedfl.federation.observer import Observer
from securedfl.federation.peers.config import NOT_SHARED, FederationConfig
from securedfl.federation.peers.events import Phase, Resumed, Status, from_json
from securedfl.federation.results import leave_results
from securedfl.federation.run_folder.folder import ELSEWHERE, RunFolder
from securedfl.federation.run_folder.metrics import PeerRow, Row, Tried
from securedfl.federation.run_folder.summary import Summary
from securedfl.federation.task import make_task
from securedfl.network.wire import keys as certificates
from securedfl.privacy.absence import Absence
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.protocol import by_name
from securedfl.storage import write_text

COMMAND = "from securedfl.cli import main; main()"
STOP_SECONDS = 10.0


@dataclass
class LocalPeer:
    """One peer process, and what it last said."""

    name: str
    process: subprocess.Popen[str]
    status: Status = field(default_factory=Status)
    rows: dict[int, PeerRow] = field(default_factory=dict)
    seen: float = field(default_factory=time.monotonic)
    error: str = ""
    readers: tuple[threading.Thread, ...] = ()


Show = Callable[[Sequence[LocalPeer]], None]
"""Called a few times per second with all peers."""


def prepare(folder: Path, config: TrainConfig, deadlines: Mapping[str, float] | None = None) -> list[Path]:
    """Write keys, ``federation.toml`` and one ``peer.toml`` per peer into a folder; return the latter."""
    names = [f"peer-{k}" for k in range(config.peers)]
    keys = folder / "keys"
    certificates.create_authority(keys)
    files = [certificates.issue(keys, name, ["127.0.0.1"]) for name in names]
    shared = config.model_dump(mode="json", exclude_none=True, include=config.model_fields_set - NOT_SHARED)
    federation = FederationConfig.resolve(
        {
            "name": folder.parent.name,
            "train": shared,
            "max_weight": float(max(make_task(config).samples)) if config.weighted else None,
            "deadlines": dict(deadlines or {}),
            "peers": [
                {
                    "name": name,
                    "address": f"127.0.0.1:{port}",
                    "fingerprint": certificates.describe(file.certificate).fingerprint,
                }
                for name, port, file in zip(names, free_ports(len(names)), files, strict=True)
            ],
        }
    )
    write_text(folder / "federation.toml", federation.to_toml(), ELSEWHERE)
    paths = []
    for name, file in zip(names, files, strict=True):
        values = {
            "name": name,
            "federation": "federation.toml",
            "out": name,
            "key": str(file.key.relative_to(folder)),
            "certificate": str(file.certificate.relative_to(folder)),
            "authority": str(file.authority.relative_to(folder)),
        }
        if config.data_dir is not None:
            values["data_dir"] = str(config.data_dir.resolve())
        paths.append(folder / f"{name}.toml")
        write_text(paths[-1], tomli_w.dumps(values), ELSEWHERE)
    return paths


def up(
    config: TrainConfig,
    path: Path,
    *,
    show: Show,
    observer: Observer | None = None,
    deadlines: Mapping[str, float] | None = None,
) -> Summary:
    """Run a federation of real processes on this machine; return the summary, as `securedfl train` does.

    Parameters
    ----------
    config
        The settings; ``methods`` is what real peers do, ``("secured",)``.
    path
        The run folder to make.
    show
        Shown the peers while they run.
    observer
        Told the run folder.
    deadlines
        Other deadlines than the default ones.
    """
    design = choose_design(config)
    row = by_name(config.protocol)
    absence = Absence.chosen(None, peers=config.peers, collusion=config.collusion, can_lose=row.can_lose)
    config, plans = _with_records(config, design)
    certificate = pass_gate(config, design, absence, plans)
    folder = RunFolder.create(path, config, design)
    if observer is not None:
        observer.folder = path
    peers: list[LocalPeer] = []
    try:
        files = prepare(path / "federation", config, deadlines)
        peers = [_start(file) for file in files]
        while any(peer.process.poll() is None for peer in peers):
            show(peers)
            time.sleep(0.25)
        show(peers)
    finally:
        _stop(peers)
        summary = _finish(folder, certificate, peers, absence, plans)
        folder.close()
    failed = [peer for peer in peers if peer.process.returncode]
    if len(failed) == len(peers):
        raise _FailedError(failed[0])
    return summary


class _FailedError(PeerLostError):
    """All peers ended with an error; carries the first one's text and exit code."""

    def __init__(self, peer: LocalPeer) -> None:
        super().__init__(peer.error.removeprefix("error: ") or f"{peer.name} ended without a word")
        self.exit_code = peer.process.returncode if peer.process.returncode > 0 else SecuredFLError.exit_code


def _start(path: Path) -> LocalPeer:
    """Start a peer in a session of its own, so that Ctrl-C reaches this process only, which then stops all."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and command
        [sys.executable, "-c", COMMAND, "peer", path.name, "--json"],
        cwd=path.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    peer = LocalPeer(path.stem, process)
    peer.readers = tuple(
        threading.Thread(target=read, args=(peer,), daemon=True) for read in (_read_events, _read_errors)
    )
    for reader in peer.readers:
        reader.start()
    return peer


def _read_events(peer: LocalPeer) -> None:
    for line in peer.process.stdout or ():
        event = from_json(line)
        peer.seen = time.monotonic()
        if isinstance(event, Status):
            peer.status = event
        elif isinstance(event, Phase):
            peer.status = replace(peer.status, phase=event.phase, round=event.round)
        elif isinstance(event, Resumed):
            peer.status = replace(peer.status, round=event.round)
        elif isinstance(event, PeerRow):
            peer.rows[event.round] = event
            peer.status = replace(peer.status, round=event.round, bytes_in=event.bytes_in, bytes_out=event.bytes_out)


def _read_errors(peer: LocalPeer) -> None:
    for line in peer.process.stderr or ():
        peer.error = line.strip() or peer.error


def _stop(peers: list[LocalPeer]) -> None:
    """Ask every process to leave, and end those that do not; each by its own handle."""
    for peer in peers:
        if peer.process.poll() is None:
            peer.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    for peer in peers:
        try:
            peer.process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            peer.process.kill()
            peer.process.wait()
        for reader in peer.readers:
            reader.join(5)
        for pipe in (peer.process.stdout, peer.process.stderr):
            if pipe is not None:
                pipe.close()


def _with_records(config: TrainConfig, design: Design) -> tuple[TrainConfig, dict[str, Plan]]:
    """Return the settings with the number of all records, which can be counted here, and what will be spent."""
    check_privacy(config)
    if config.privacy is None:
        return config, {}
    task = make_task(config)
    counted = config.privacy.records or sum(task.samples)
    config = config.model_copy(update={"privacy": config.privacy.model_copy(update={"records": counted})})
    return config, planned(config, task, design)[1]


def _finish(
    folder: RunFolder,
    certificate: Mapping[str, Any],
    peers: list[LocalPeer],
    absence: Absence,
    plans: dict[str, Plan],
) -> Summary:
    """Pool what the peers measured into the rows of a run, and leave its results."""
    rounds = sorted({round for peer in peers for round in peer.rows})
    before: dict[str, int] = {}
    for round in rounds:
        rows = {peer.name: peer.rows[round] for peer in peers if round in peer.rows}
        folder.append(pooled(round, rows, before))
        before |= {name: row.bytes_out for name, row in rows.items()}
    last = min(last_round(plan, folder.config.rounds) for plan in [*plans.values(), None])
    finished = bool(rounds) and rounds[-1] >= last
    return leave_results(folder, make_task(folder.config), certificate, finished=finished, absence=absence, plans=plans)


def pooled(round: int, rows: Mapping[str, PeerRow], before: Mapping[str, int]) -> Row:
    """Return one row of the whole federation; the true mean is nobody's to know, so errors stay unknown.

    Parameters
    ----------
    round, rows
        What each peer, by name, did in the round.
    before
        How many bytes each had sent before it.
    """
    values = list(rows.values())
    scores = [row.score for row in values if row.score is not None]
    losses = [(row.train_loss, row.samples) for row in values if row.train_loss is not None]
    sent = sum(row.bytes_out - before.get(name, 0) for name, row in rows.items())
    return replace(
        Row.pooled("secured", round, scores, losses),
        bytes_per_peer=sent / len(rows),
        train_seconds=max(row.train_seconds for row in values),
        average_seconds=max(row.average_seconds for row in values),
        epsilon=max((row.epsilon for row in values if row.epsilon is not None), default=None),
        tried=_tried(values),
    )


def _tried(rows: Iterable[PeerRow]) -> tuple[Tried, ...]:
    """Pool what the peers know about the attempts of a round; any of them may have missed some."""
    found: dict[tuple[int, int], Tried] = {}
    for row in rows:
        for tried in row.tried:
            key = (tried.epoch, tried.attempt)
            found[key] = replace(tried, opened=tried.opened or found.get(key, tried).opened)
    return tuple(found[key] for key in sorted(found))


def free_ports(count: int) -> list[int]:
    """Find free ports outside the range from which the system takes those of outgoing connections."""
    found: list[int] = []
    while len(found) < count:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
