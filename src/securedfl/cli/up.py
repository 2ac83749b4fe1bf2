"""``securedfl up``: a federation of real processes on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from securedfl.cli.options import AsJson, ConfigFile, checked, merged, with_settings
from securedfl.cli.report import report_of
from securedfl.cli.train import tell
from securedfl.cli.watch import Watch, watching
from securedfl.errors import ConfigError, needing
from securedfl.federation.methods import SECURED
from securedfl.federation.observer import Observer
from securedfl.federation.results import default_folder
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.summary import Summary

SIMULATED = {
    "methods": "real peers run the method secured",
    "masks": "real peers always draw masks in secret",
    "engine": "every real peer is a process",
    "address": "every real peer has its own",
    "workers": "every real peer is a process",
    "messages_every": "real peers pass the messages of all rounds",
    "checkpoint_every": "real peers keep every round",
    "keep_updates": "nobody has the updates of all real peers",
}
"""Settings that real peers have no use for, and why."""
UNSEEN = (*SIMULATED, "peers_per_round", "between_rounds")
"""What ``--help`` does not show: also settings of which real peers have one value only."""

if TYPE_CHECKING:
    from securedfl.federation.peers.local import LocalPeer


@with_settings(unseen=UNSEEN)
def up(
    config: ConfigFile = None,
    as_json: AsJson = False,
    watch: Watch = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Make keys, start one peer process per site on loopback, and show them while they train.

    Leaves the same run folder and report as `securedfl train`; Ctrl-C and SIGTERM stop all peers. Says at once when a
    peer is lost, how, and what follows; the exit code tells of it at the end.

    **Examples**

    - `securedfl up --peers 9 --dataset digits`
    - `securedfl up --peers 3 --entry app:make`
    - `securedfl up --peers 9 --protocol shares --collusion 2 --rounds 5 --json`
    """
    with needing("real peers"):
        from securedfl.federation.peers.config import DEFAULT_PROTOCOL
        from securedfl.federation.peers.local import ProcessLostError
        from securedfl.federation.peers.local import up as run
    console = Console(stderr=as_json, highlight=False, emoji=False)
    for key in sorted(settings.keys() & SIMULATED.keys()):
        raise ConfigError(f"--{key.replace('_', '-')} is for simulations: {SIMULATED[key]}; leave it away")
    values = {"protocol": DEFAULT_PROTOCOL, **merged(config, settings)}
    for key in sorted(values.keys() & SIMULATED.keys()):
        console.print(f"{key} in {config} is for simulations: {SIMULATED[key]}", markup=False, soft_wrap=True)
        del values[key]
    values |= {"methods": (SECURED,), "masks": "secret"}
    chosen = checked(config, values)
    path = chosen.out or default_folder(chosen)
    console.print(f"{chosen.peers} peers on loopback; run folder {path}", markup=False, soft_wrap=True)
    lost: ProcessLostError | None = None
    with (
        watching(path if watch else None, console),
        shown_on(console, chosen.rounds) as shown,
        report_of(shown),
    ):
        try:
            summary: Summary | None = run(chosen, path, shown)
        except ProcessLostError as error:
            summary, lost = error.summary, error
    # what the others did counts, too
    if summary is not None and (lost is None or summary.finished):
        tell(summary, console, as_json=as_json)
    if lost is not None:
        raise lost


@contextmanager
def shown_on(console: Console, rounds: int) -> Iterator[RoundLines | LiveTable]:
    """Give what suits the console: a live table on a terminal, lines elsewhere."""
    if not console.is_terminal:
        yield RoundLines(console, rounds)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield LiveTable(live, rounds)


class LiveTable(Observer):
    """All peers, several times a second."""

    def __init__(self, live: Live, rounds: int) -> None:
        self._live, self._rounds = live, rounds

    def told(self, text: str) -> None:
        """Say it above the table."""
        self._live.console.print(text, markup=False, soft_wrap=True)

    def show(self, peers: Sequence[LocalPeer]) -> None:
        """Draw the table anew."""
        self._live.update(table(peers, self._rounds))


def table(peers: Sequence[LocalPeer], rounds: int) -> Table:
    """Return the live table: peer, round, phase, bytes in and out, epsilon if it is spent, last seen."""
    spends = any(row.epsilon is not None for peer in peers for row in list(peer.rows.values()))
    columns = ["Peer", "Round", "Phase", "In", "Out", *(["Epsilon"] if spends else []), "Last seen"]
    result = Table(*columns, box=None, pad_edge=False)
    for peer in peers:
        now, code = peer.status, peer.process.poll()
        result.add_row(
            peer.name,
            f"{max(now.round, 0)}/{now.rounds or rounds}",
            now.phase if code is None else "done" if code == 0 else peer.error or "lost",
            f"{now.bytes_in / 1e6:.1f} MB",
            f"{now.bytes_out / 1e6:.1f} MB",
            *([_epsilon(peer)] if spends else []),
            f"{time.monotonic() - peer.seen:.0f} s ago" if code is None else "",
        )
    return result


def _epsilon(peer: LocalPeer) -> str:
    """Return what a peer says was spent so far."""
    last = peer.rows[max(peer.rows)].epsilon if peer.rows else None
    return "" if last is None else f"{last:.3g}"


class RoundLines(Observer):
    """One line per finished round, for logs."""

    def __init__(self, console: Console, rounds: int) -> None:
        self._console, self._rounds, self._shown = console, rounds, -1

    def told(self, text: str) -> None:
        """Say it in a line of its own."""
        self._console.print(text, markup=False, soft_wrap=True)

    def show(self, peers: Sequence[LocalPeer]) -> None:
        """Print the rounds that have been finished since the last call."""
        running = [peer for peer in peers if peer.process.returncode in (None, 0)]
        done = min((max(peer.rows, default=-1) for peer in running), default=-1)
        # an operator may have changed it, which one that is lost does not know
        rounds = max([done, *(peer.status.rounds or self._rounds for peer in running)])
        for round in range(self._shown + 1, done + 1):
            rows = {peer.name: peer.rows[round] for peer in peers if round in peer.rows}
            row = Row.of_peers(round, rows, {})
            told = "" if math.isnan(row.accuracy) else f"  accuracy {row.accuracy:.4f}"
            told += "" if row.epsilon is None else f"  epsilon {row.epsilon:.3g}"
            self._console.print(f"round {round}/{rounds}  {len(rows)} peers{told}  average {row.average_seconds:.2f} s")
        self._shown = max(self._shown, done)
