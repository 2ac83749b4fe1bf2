"""``securedfl peer``: one site's part in a federation of real peers."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from securedfl.cli.network import needing_network


def peer(
    config: Annotated[Path, typer.Argument(metavar="PEER.toml", help="This site's settings.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Join the federation, train and average for the agreed rounds; start it again after a crash to go on.

    **Example**

    - `securedfl peer hospital-a.toml`
    """
    with needing_network():
        from securedfl.federation.peers.run import run_peer
        from securedfl.network.memory import share_one_heap
    share_one_heap()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # leave as after Ctrl-C: with a word to the others
    console = Console(highlight=False)

    def tell(event: dict[str, Any]) -> None:
        if as_json:
            typer.echo(json.dumps(event))
        else:
            text = describe(event)
            if text:
                console.print(text, markup=False, soft_wrap=True)

    out = run_peer(config, tell=tell)
    if not as_json:
        console.print(f"Model and metrics: {out}", markup=False, soft_wrap=True)


def describe(event: dict[str, Any]) -> str:
    """Return an event as a line for people; some are not worth one."""
    kind = event["event"]
    if kind == "waiting":
        return f"waiting for {', '.join(event['missing'])}" if event["missing"] else "all peers are there"
    if kind == "certificate":
        return str(event["sentence"])
    if kind == "resumed":
        return f"going on after round {event['round']}"
    if kind == "round":
        accuracy = f"  accuracy {event['correct'] / event['count']:.4f}" if event.get("count") else ""
        remark = "  (void: a member was lost)" if event["void"] else "  (fetched)" if event["fetched"] else ""
        return (
            f"round {event['round']:>3}  {len(event['members']) or '?'} peers{accuracy}  "
            f"train {event['train_seconds']:.2f} s  average {event['average_seconds']:.2f} s{remark}"
        )
    return ""
