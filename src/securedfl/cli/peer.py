"""``securedfl peer``: one site's part in a federation of real peers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from securedfl.cli.watch import Watch, watching
from securedfl.errors import needing
from securedfl.federation.peers.events import (
    AllDone,
    Back,
    Certified,
    Ended,
    Event,
    Failed,
    Ignored,
    Lost,
    Resumed,
    Staying,
    Unfit,
    Waiting,
    to_json,
)
from securedfl.federation.run_folder.files import CERTIFICATE, LEDGER
from securedfl.federation.run_folder.metrics import PeerRow

if TYPE_CHECKING:
    from securedfl.federation.peers.config import PeerConfig


def peer(
    config: Annotated[Path, typer.Argument(metavar="PEER.toml", help="This site's settings.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
    watch: Watch = False,
) -> None:
    """Join the federation, train and average for the agreed rounds; start it again after a crash to go on.

    **Example**

    - `securedfl peer hospital-a.toml`

    `securedfl federation init` writes such a file.
    """
    with needing("real peers"):
        from securedfl.federation.peers.config import PeerConfig
        from securedfl.federation.peers.run import run_peer
        from securedfl.network.data.memory import share_one_heap
    share_one_heap()
    # what a peer writes is for its owner alone
    os.umask(0o077)
    console = Console(highlight=False, stderr=as_json, emoji=False)

    def tell(event: Event) -> None:
        if as_json:
            typer.echo(to_json(event))
        elif text := describe(event):
            console.print(text, markup=False, soft_wrap=True)

    def say(*lines: str) -> None:
        for line in lines if not as_json else ():
            console.print(line, markup=False, soft_wrap=True)

    site = PeerConfig.load(config)
    say(*at_start(site))
    with watching(site.out if watch else None, console):
        try:
            run_peer(config, tell)
        except KeyboardInterrupt:
            say(f"`securedfl peer {config}` goes on where the others are; what is done so far is in {site.out}")
            raise
    say(*at_end(site.out))


def at_start(site: PeerConfig) -> list[str]:
    """Return what a peer says before all else: where things are."""
    return [
        f"{site.name}: everything goes to the folder {site.out}; its log is {site.out / 'peer.log'}",
        f"Its TLS certificate is {site.files().certificate}, what it promises about privacy {site.out / CERTIFICATE}",
        f"`securedfl watch {site.out}` shows the run; Ctrl-C leaves with a word to the others",
    ]


def at_end(out: Path) -> list[str]:
    """Return what a peer says when its part is over: what there is now, and what can be done with it."""
    # late: the command line shall start fast
    from securedfl.federation.run_folder.model import MODEL

    models = [str(path) for name in (MODEL, "model.npz") if (path := out / name).exists()]
    made = f"Model: {' and '.join(models)}; `sha256sum` shows whether other sites have the same" if models else ""
    return [
        made or "There is no model, because no average was made",
        f"Certificate of privacy: {out / CERTIFICATE}, and what was really told: {out / LEDGER}",
        *([f"Use it: `securedfl.load({str(out)!r})` in Python"] if (out / MODEL).exists() else []),
        f"`securedfl report {out}` writes a page of all rounds",
    ]


def describe(event: Event) -> str:
    """Return an event as a line for people; some are not worth one."""
    match event:
        case Waiting(missing):
            return f"waiting for {', '.join(missing)}" if missing else "nobody is waited for any more"
        case Lost(peers):
            return f"nothing is heard from {', '.join(peers)}"
        case Back(peers):
            return f"{', '.join(peers)} is there"
        case Unfit(peer, reason):
            return f"warning: {peer} does not fit: {reason}"
        case Certified(sentence):
            return sentence
        case Ended(reason):
            return reason
        case Failed(reason) | Ignored(reason):
            return f"warning: {reason}"
        case Resumed(round):
            return f"going on after round {round}"
        case AllDone(round):
            return f"all {round} rounds are done; `securedfl extend PEER.toml --rounds N` adds more"
        case Staying(peers, seconds, asking):
            why = [f"for {', '.join(peers)} to get the last model"] if peers else []
            why += [f"until it is decided what {', '.join(asking)} asked for"] if asking else []
            return f"done; staying for up to {seconds:.0f} s {' and '.join(why)}; Ctrl-C leaves now"
        case PeerRow():
            score = event.score
            accuracy = f"  accuracy {score.correct / score.count:.4f}" if score else ""
            spent = "" if event.epsilon is None else f"  epsilon {event.epsilon:.3g}"
            remark = "  (void: no average; peer.log says why)" if event.void else "  (fetched)" if event.fetched else ""
            return (
                f"round {event.round:>3}  {len(event.members) or '?'} peers{accuracy}{spent}  "
                f"train {event.train_seconds:.2f} s  average {event.average_seconds:.2f} s{remark}"
            )
        case _:
            return ""
