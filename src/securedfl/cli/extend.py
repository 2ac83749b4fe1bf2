"""``securedfl extend``: more rounds, or other deadlines, while peers run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from securedfl.cli.stop import PeerFile, Wait, wanted
from securedfl.errors import ConfigError


def _seconds(words: str) -> Any:
    return typer.Option(min=0.001, metavar="SECONDS", help=words)


def extend(
    config: PeerFile,
    rounds: Annotated[int | None, typer.Option(min=0, help="The new last round.")] = None,
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
    typer.echo(wanted(config, Wish("settings", rounds=rounds, deadlines=deadlines), wait))  # type: ignore[arg-type]
