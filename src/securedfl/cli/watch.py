"""``securedfl watch``: a live page of a run, on this machine only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from securedfl.errors import RunFolderError

Watch = Annotated[bool, typer.Option("--watch", help="Serve a live page of this run on loopback while it runs.")]


def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run folder, of train or up, or the folder of a real peer.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of 127.0.0.1; 0 takes a free one.")] = 0,
    token: Annotated[
        bool, typer.Option("--token/--no-token", help="Ask for the token in the address, which others do not know.")
    ] = True,
) -> None:
    """Serve one page that shows a run while it goes on: rounds, peers and links, bytes, accuracy, epsilon, certificate.

    Read-only, on loopback, offline. The address that is printed carries a random token: whoever has it can read the
    page, and other users of this machine cannot. It reads the folder's files and ends with Ctrl-C; the run goes on
    without it.

    **Examples**

    - `securedfl watch runs/first`
    - `securedfl watch site-a --port 8080` : the folder `out` of a peer
    - `securedfl train --watch`, `securedfl up --watch`, `securedfl peer site-a.toml --watch`
    """
    if not folder.is_dir():
        raise RunFolderError(
            f"there is no folder {folder} to watch; give that of a run (`securedfl train --out`) or of a peer (out in "
            "its peer.toml)"
        )
    with suppress(KeyboardInterrupt), watching(folder, Console(highlight=False, emoji=False), port=port, token=token):
        threading.Event().wait()


@contextmanager
def watching(folder: Path | None, console: Console, *, port: int = 0, token: bool = True) -> Iterator[None]:
    """Serve the live page of a folder, which may still be to come, and say where; nothing without a folder."""
    if folder is None:
        yield
        return
    # late: it takes a moment to load
    from securedfl.reporting.live.server import serving

    with serving(folder, port, token=token) as address:
        console.print(f"Watch it at {address}", markup=False, soft_wrap=True)
        yield
