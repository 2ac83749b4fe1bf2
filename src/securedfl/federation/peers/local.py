"""A local federation: keys, settings and one peer process per site on loopback, and one run folder of it all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from msgspec import structs

from securedfl.arrays import to_numpy
from securedfl.designs import Design
from securedfl.errors import ConfigError, PeerLostError, SecuredFLError
from securedfl.federation.apps.settings import own_data
from securedfl.federation.budget.account import last_round
from securedfl.federation.budget.planning import check_privacy
from securedfl.federation.budget.task import planned
from securedfl.federation.config import TrainConfig
from securedfl.federation.founding.files import NewSite, free_ports, write_federation
from securedfl.federation.gate import pass_gate, save_certificate
from securedfl.federation.methods import SECURED, choose_design
from securedfl.federation.peers.config import NOT_SHARED
from securedfl.federation.peers.events import PeerStatus, Phase, Resumed, from_json
from securedfl.federation.results import leave_results
from securedfl.federation.run_folder.files import FEDERATION, SUMMARY
from securedfl.federation.run_folder.folder import RunFolder
from securedfl.federation.run_folder.metrics import PeerRow, pool
from securedfl.federation.run_folder.model import MODEL, common_parts, read_model, save_model
from securedfl.federation.run_folder.summary import Samples, Summary, joined, read_data, read_summary
from securedfl.federation.run_folder.trackers import trackers
from securedfl.federation.task import chosen_by, task_of
from securedfl.privacy.absence import Absence
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.protocol import by_name

COMMAND = "from securedfl.cli import main; main()"
STOP_SECONDS = 10.0
ERROR = "error: "
"""How the command line begins what it tells of an error."""


@dataclass
class LocalPeer:
    """One peer process, and what it last said."""

    name: str
    process: subprocess.Popen[str]
    status: PeerStatus = field(default_factory=PeerStatus)
    rows: dict[int, PeerRow] = field(default_factory=dict)
    seen: float = field(default_factory=time.monotonic)
    error: str = ""
    readers: tuple[threading.Thread, ...] = ()


class LocalObserver(Protocol):
    """Is told the run folder, as an `Observer` is, and shown the peers while they run."""

    folder: Path | None

    def show(self, peers: Sequence[LocalPeer]) -> None:
        """See all peers, a few times per second."""


def prepare(folder: Path, config: TrainConfig, deadlines: Mapping[str, float] | None = None) -> list[Path]:
    """Write keys, ``federation.toml`` and one ``peer.toml`` per peer into a folder; return the latter."""
    shared = config.model_dump(mode="json", exclude_none=True, include=config.model_fields_set - NOT_SHARED)
    common = {
        "name": folder.parent.name,
        "entry": config.entry,
        "train": shared,
        "max_weight": float(max(_samples(config))) if config.weighted else None,
        "deadlines": dict(deadlines or {}),
    }
    sites = []
    for number, port in enumerate(free_ports(config.peers)):
        name = f"peer-{number}"
        own: dict[str, Any] = {}
        if config.device != "cpu":
            own["device"] = config.device
        if config.data_dir is not None:
            own["data_dir"] = str(config.data_dir.resolve())
        if config.data:
            own["data"] = own_data(config, number, name)
        sites.append(NewSite(name=name, address=f"127.0.0.1:{port}", out=name, own=own))
    return write_federation(folder, sites, common, issue=True).files


def _samples(config: TrainConfig) -> list[int]:
    """Return how many training samples each peer has."""
    trainer = task_of(config).maker(range(config.peers))()
    return [trainer.samples(peer) for peer in range(config.peers)]


def up(
    config: TrainConfig,
    path: Path,
    observer: LocalObserver,
    deadlines: Mapping[str, float] | None = None,
) -> Summary:
    """Run a federation of real processes on this machine; return the summary, as `securedfl train` does.

    Parameters
    ----------
    config
        The settings; ``methods`` is what real peers do, ``("secured",)``.
    path
        The run folder to make.
    observer
        Told the run folder, and shown the peers.
    deadlines
        Other deadlines than the default ones.
    """
    if config.members != config.peers:
        raise ConfigError("peers_per_round is for simulations: all real peers that are there take part; leave it away")
    if config.between_rounds != "keep":
        raise ConfigError("between_rounds is for simulations: a real peer keeps what it needs; leave it away")
    design = choose_design(config)
    row = by_name(config.protocol)
    absence = Absence.chosen(None, peers=config.peers, collusion=config.collusion, can_lose=row.can_lose)
    if config.entry is not None:
        # a mistake in the app is told before anything is written
        config = chosen_by(task_of(config), config)
    config, plans = _with_records(config, design)
    certificates = pass_gate(config, design, absence, plans)
    folder = RunFolder.create(path, config, design)
    observer.folder = path
    peers: list[LocalPeer] = []
    try:
        save_certificate(path, certificates)
        files = prepare(path / FEDERATION, config, deadlines)
        peers = [_start(file) for file in files]
        while any(peer.process.poll() is None for peer in peers) and not any(map(_failed, peers)):
            observer.show(peers)
            time.sleep(0.25)
        observer.show(peers)
    except BaseException:  # Ctrl-C too
        _end(folder, peers, absence, plans, observer)
        raise
    broken = next(filter(_failed, peers), None)
    summary = _end(folder, peers, absence, plans, observer)
    if broken is not None or summary is None or all(peer.process.returncode for peer in peers):
        raise _FailedError(broken or peers[0], None if summary is None else path)
    return summary


def _end(
    folder: RunFolder,
    peers: list[LocalPeer],
    absence: Absence,
    plans: dict[str, Plan],
    observer: LocalObserver,
) -> Summary | None:
    """Stop all peers and leave the results; None if no round was reached, so that nothing is left."""
    _stop(peers)
    try:
        if not any(peer.rows for peer in peers) and folder.abandon():
            observer.folder = None
            return None
        return _finish(folder, peers, absence, plans)
    finally:
        folder.close()


def _failed(peer: LocalPeer) -> bool:
    """Tell whether a peer ended by an error of its own, which nobody here mends; one that was killed may come back."""
    return (peer.process.poll() or 0) > 0


class _FailedError(PeerLostError):
    """A peer ended with an error, or all of them ended; carries its text and exit code."""

    def __init__(self, peer: LocalPeer, folder: Path | None) -> None:
        text = peer.error.removeprefix(ERROR) or "ended without a word"
        text = text if peer.name in text else f"{peer.name}: {text}"
        if folder is not None:
            text += f"\nThe run goes on with `securedfl peer` for every {folder / FEDERATION / 'peer-*.toml'}"
        super().__init__(text)
        self.exit_code = peer.process.returncode if peer.process.returncode > 0 else SecuredFLError.exit_code


def _start(path: Path) -> LocalPeer:
    """Start a peer in a session of its own, so that Ctrl-C reaches this process only, which then stops all."""
    # it works in a folder of its own, and finds the modules of apps where this process does
    modules = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and command
        [sys.executable, "-c", COMMAND, "peer", path.name, "--json"],
        cwd=path.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(modules)},
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
        if isinstance(event, PeerStatus):
            peer.status = event
        elif isinstance(event, Phase):
            peer.status = structs.replace(peer.status, phase=event.phase, round=event.round)
        elif isinstance(event, Resumed):
            peer.status = structs.replace(peer.status, round=event.round)
        elif isinstance(event, PeerRow):
            peer.rows[event.round] = event
            moved = {"bytes_in": event.bytes_in, "bytes_out": event.bytes_out}
            peer.status = structs.replace(peer.status, round=event.round, **moved)


def _read_errors(peer: LocalPeer) -> None:
    """Keep our error with all its lines, or else the last line that there is."""
    for line in peer.process.stderr or ():
        if peer.error.startswith(ERROR) and not line.startswith(ERROR):
            peer.error += f"\n{line.rstrip()}" if line.strip() else ""
        else:
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
    task = task_of(config)
    if config.privacy.unit == "record":
        counted = config.privacy.records or sum(_samples(config))
        config = config.model_copy(update={"privacy": config.privacy.model_copy(update={"records": counted})})
    return config, planned(config, task, design)[1]


def _finish(
    folder: RunFolder,
    peers: list[LocalPeer],
    absence: Absence,
    plans: dict[str, Plan],
) -> Summary:
    """Pool what the peers measured into the rows of a run, and leave its results."""
    rows = pool({peer.name: peer.rows for peer in peers})
    for row in rows:
        folder.append(row)
    folder.config = folder.config.model_copy(update={"rounds": _rounds(folder, peers)})
    _leave_model(folder)
    planned_rounds = min([last_round(plan, folder.config.rounds) for plan in plans.values()] or [folder.config.rounds])
    finished = bool(rows) and rows[-1].round >= planned_rounds
    last = [peer.rows[max(peer.rows)] for peer in peers if peer.rows]
    # accuracy is of those that were there at the end
    tests = sum(peer.rows[rows[-1].round].count or 0 for peer in peers if rows and rows[-1].round in peer.rows)
    samples = Samples(train=sum(row.samples or 0 for row in last), test=tests)
    data = joined(found for peer in peers if (found := read_data(folder.path / FEDERATION / peer.name)) is not None)
    summary = leave_results(folder, samples, data, finished=finished, absence=absence, plans=plans)
    with trackers(folder.path, folder.config, SECURED, 0) as track:
        for row in rows:
            track(row)
    return summary


def _rounds(folder: RunFolder, peers: list[LocalPeer]) -> int:
    """Return the last round of the run, as the peer says that came farthest: an operator may have changed it."""
    farthest = folder.path / FEDERATION / max(peers, key=lambda peer: max(peer.rows, default=-1)).name
    return read_summary(farthest).rounds if (farthest / SUMMARY).exists() else folder.config.rounds


def _leave_model(folder: RunFolder) -> None:
    """Put the model that the peers have in common into the run folder; after a stop, there may be none."""
    files = sorted((folder.path / FEDERATION).glob(f"peer-*/{MODEL}"))
    if len(files) == folder.config.peers:
        models, abouts = zip(*map(read_model, files), strict=True)
        common, personal = common_parts([{k: to_numpy(v) for k, v in model.items()} for model in models])
        if len({about.round for about in abouts}) == 1:
            save_model(folder.path / MODEL, common, replace(abouts[0], personal=personal))
