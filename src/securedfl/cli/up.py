"""``securedfl up``: a federation of real processes on this machine."""

from __future__ import annotations

import json
import time
from typing import Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from securedfl.cli.network import needing_network
from securedfl.cli.options import AsJson, ConfigFile, checked, merged, with_settings


@with_settings
def up(
    config: ConfigFile = None,
    as_json: AsJson = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Make keys, start one peer process per site on loopback, and show them while they train.

    Leaves the same run folder and report as `securedfl train`; Ctrl-C stops all peers.

    **Examples**

    - `securedfl up --peers 9 --dataset digits`
    - `securedfl up --peers 9 --protocol shares --collusion 2 --rounds 5 --json`
    """
    with needing_network():
        from securedfl.cli.train import show as show_summary
        from securedfl.federation.peers.local import up as run
        from securedfl.federation.train import default_folder
    console = Console(stderr=as_json, highlight=False)
    values = merged(config, settings)
    values |= {"methods": ("secured",), "masks": "secret"}
    chosen = checked(config, values)
    path = chosen.out or default_folder(chosen)
    console.print(f"{chosen.peers} peers on loopback; run folder {path}", markup=False, soft_wrap=True)
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            summary = run(chosen, path, show=lambda peers: live.update(table(peers, chosen.rounds)))
    else:
        summary = run(chosen, path, show=Lines(console, chosen.rounds))
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        show_summary(summary, console)


def table(peers: list[Any], rounds: int) -> Table:
    """Return the live table: peer, round, phase, bytes in and out, last seen."""
    result = Table("Peer", "Round", "Phase", "In", "Out", "Last seen", box=None, pad_edge=False)
    for peer in peers:
        now, code = peer.latest, peer.process.poll()
        phase = (
            now.get("phase", "starting") if code is None else "done" if code == 0 else peer.error or "lost"
        )
        result.add_row(
            peer.name,
            f"{max(now.get('round', 0), 0)}/{rounds}",
            phase,
            f"{now.get('bytes_in', 0) / 1e6:.1f} MB",
            f"{now.get('bytes_out', 0) / 1e6:.1f} MB",
            f"{time.monotonic() - peer.seen:.0f} s ago" if code is None else "",
        )
    return result


class Lines:
    """One line per finished round, for logs."""

    def __init__(self, console: Console, rounds: int) -> None:
        self._console, self._rounds, self._shown = console, rounds, -1

    def __call__(self, peers: list[Any]) -> None:
        """Print the rounds that have been finished since the last call."""
        done = min(
            (max(peer.rows, default=-1) for peer in peers if peer.process.returncode in (None, 0)), default=-1
        )
        for round in range(self._shown + 1, done + 1):
            rows = [peer.rows[round] for peer in peers if round in peer.rows]
            count = sum(row.get("count", 0) for row in rows)
            accuracy = f"  accuracy {sum(row['correct'] for row in rows) / count:.4f}" if count else ""
            seconds = max(row["average_seconds"] for row in rows)
            self._console.print(
                f"round {round}/{self._rounds}  {len(rows)} peers{accuracy}  average {seconds:.2f} s"
            )
        self._shown = max(self._shown, done)
