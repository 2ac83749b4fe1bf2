"""A local federation: keys, settings and one peer process per site on loopback, and the run folder of them all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from securedfl.arrays import to_numpy
from securedfl.designs import Design
from securedfl.errors import ConfigError, PeerLostError
from securedfl.federation.apps.settings import own_data
from securedfl.federation.budget.account import last_round
from securedfl.federation.budget.planning import check_privacy
from securedfl.federation.budget.task import planned
from securedfl.federation.config import TrainConfig
from securedfl.federation.founding.files import NewSite, free_ports, write_federation
from securedfl.federation.gate import pass_gate, save_certificate
from securedfl.federation.methods import SECURED, choose_design
from securedfl.federation.peers.config import NOT_SHARED, FederationConfig, PeerConfig
from securedfl.federation.peers.local.processes import ERROR, LocalPeer, start, stop
from securedfl.federation.results import leave_results
from securedfl.federation.run_folder.files import FEDERATION, SUMMARY
from securedfl.federation.run_folder.folder import RunFolder
from securedfl.federation.run_folder.metrics import pool
from securedfl.federation.run_folder.model import MODEL, common_parts, read_model, save_model
from securedfl.federation.run_folder.summary import Samples, Summary, joined, read_data, read_summary
from securedfl.federation.run_folder.trackers import trackers
from securedfl.federation.task import chosen_by, task_of
from securedfl.privacy.absence import Absence
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.protocol import by_name


class LocalObserver(Protocol):
    """Is told the run folder, as an `Observer` is, and shown the peers while they run."""

    folder: Path | None

    def show(self, peers: Sequence[LocalPeer]) -> None:
        """See all peers, a few times per second."""

    def told(self, text: str) -> None:
        """Hear that a peer is lost, and what follows, as soon as it is known."""


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
        for file in prepare(path / FEDERATION, config, deadlines):
            # one by one, so that an error here leaves none behind
            peers.append(start(file))
        _watch(peers, observer)
    except BaseException:  # Ctrl-C too
        _end(folder, peers, absence, plans, observer)
        raise
    # before the others are stopped
    lost = [peer for peer in peers if peer.end()]
    summary = _end(folder, peers, absence, plans, observer)
    if lost or summary is None:
        raise ProcessLostError(lost or peers, summary, path)
    return summary


def _watch(peers: Sequence[LocalPeer], observer: LocalObserver) -> None:
    """Show the peers until all of them have ended, or one has by an error of its own; tell at once of each loss."""
    lost: set[str] = set()
    while True:
        running = sum(peer.running() for peer in peers)
        observer.show(peers)
        for peer in peers:
            if peer.name not in lost and (end := peer.end()):
                lost.add(peer.name)
                observer.told(loss(peer, end, [other for other in peers if not other.end()]))
        if not running or any(peer.failed() for peer in peers):
            return
        time.sleep(0.25)


def loss(peer: LocalPeer, end: str, others: Sequence[LocalPeer]) -> str:
    """Return what is told of a peer that ended too early: how, its log, and what follows; no other one is lost."""
    over, running = peer.last_round_done(), sum(other.running() for other in others)
    when = "after the last round" if over else f"in round {max(peer.status.round, 0)}"
    text = f"{peer.name} {end} {when}; its log is {peer.log}."
    last = running > 0 and all(other.last_round_done() for other in others)
    if (over or last) and not peer.failed():
        how = (
            "also once the others have ended" if over else "while the others, who have done the last round, stay for it"
        )
        return (
            f"{text} Only its own result may not be whole; `securedfl peer {peer.file}` in another terminal completes "
            f"it, {how}."
        )
    if peer.failed():
        return f"{text} It would fail again, so all others are stopped."
    if not running:
        return f"{text} Nobody is left."
    federation = FederationConfig.load(PeerConfig.load(peer.file).federation)
    fewest = len(federation.peers) if federation.missing.policy == "wait" else federation.fewest
    goes_on = f"go on without it, while at least {fewest} peers are there" if running >= fewest else "wait for it"
    return (
        f"{text} It is not started again by itself: the others {goes_on}. `securedfl peer {peer.file}` in another "
        "terminal brings it back, Ctrl-C here stops all."
    )


def _end(
    folder: RunFolder,
    peers: list[LocalPeer],
    absence: Absence,
    plans: dict[str, Plan],
    observer: LocalObserver,
) -> Summary | None:
    """Stop all peers and leave the results; None if no round was reached, so that nothing is left."""
    stop(peers)
    try:
        if not any(peer.rows for peer in peers) and folder.abandon():
            observer.folder = None
            return None
        return _finish(folder, peers, absence, plans)
    finally:
        folder.close()


class ProcessLostError(PeerLostError):
    """Peers ended before their part was done; carries the exit code of an error of their own, if it was one.

    Attributes
    ----------
    summary
        Of what the others did; None if no round was reached.
    """

    def __init__(self, lost: Sequence[LocalPeer], summary: Summary | None, folder: Path) -> None:
        first = next((peer for peer in lost if peer.failed()), lost[0])
        text = first.error.removeprefix(ERROR) if first.failed() and first.error else ""
        if not text:
            text = "; ".join(f"{peer.name} {peer.end() or 'ended without a word'} ({peer.log})" for peer in lost)
        text = text if first.name in text else f"{first.name}: {text}"
        if summary is not None and not summary.finished:
            text += f"\nThe run goes on with `securedfl peer` for every {folder / FEDERATION / 'peer-*.toml'}"
        elif summary is not None:
            text += "\nThe others finished: results and model are theirs"
        super().__init__(text)
        self.summary = summary
        if first.failed():
            self.exit_code = first.process.returncode


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
