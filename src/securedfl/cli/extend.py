"""``securedfl extend``: more rounds, or other deadlines, while peers run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from securedfl.cli.stop import PeerFile, Wait, wanted
from securedfl.errors import ConfigError, RunFolderError, needing


def _seconds(words: str) -> Any:
    return typer.Option(min=0.001, max=1e9, metavar="SECONDS", help=words)


def extend(
    config: PeerFile,
    rounds: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="The new last round.")] = None,
    train: Annotated[float | None, _seconds("Seconds to get ready for a round.")] = None,
    average: Annotated[float | None, _seconds("Seconds without progress within an attempt.")] = None,
    absent: Annotated[float | None, _seconds("Seconds for a lost member to come back.")] = None,
    heartbeat: Annotated[float | None, _seconds("Seconds between signs of life.")] = None,
    wait: Wait = 60.0,
) -> None:
    """Change the last round or deadlines of a run, for all peers; more than half of them must be there.

    What the deadlines are about, and their defaults: docs/reference/configuration.md

    **Examples**

    - `securedfl extend hospital-a.toml --rounds 40`
    - `securedfl extend hospital-a.toml --train 7200`
    """
    from securedfl.network.operator import Wish

    given = {"train": train, "average": average, "absent": absent, "heartbeat": heartbeat}
    deadlines = {name: value for name, value in given.items() if value is not None}
    if rounds is None and not deadlines:
        raise ConfigError("say what to change: --rounds, --train, --average, --absent or --heartbeat")
    if train is not None and (warning := _missed(config, train)):
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(wanted(config, Wish("settings", rounds=rounds, deadlines=deadlines), wait))  # type: ignore[arg-type]


def _missed(config: Path, train: float) -> str:
    """Return a warning if this site trained for longer than that in a round; what it measured is its own."""
    with needing("real peers"):
        from securedfl.federation.peers.config import PeerConfig
        from securedfl.federation.run_folder.metrics import PeerRow, read_rows

    rows: list[PeerRow] = []
    with suppress(RunFolderError):
        rows = read_rows(PeerConfig.load(config).out, PeerRow)
    longest = max(rows, key=lambda row: row.train_seconds, default=None)
    if longest is None or longest.train_seconds <= train:
        return ""
    return (
        f"this site trained for {longest.train_seconds:.1f} s in round {longest.round}, longer than --train {train:g}: "
        "rounds may go on without it, or wait and be tried again"
    )
