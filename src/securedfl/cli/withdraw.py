"""``securedfl withdraw``: take back a change that was asked for and is not decided."""

from __future__ import annotations

import typer

from securedfl.cli.stop import PeerFile, Wait


def withdraw(config: PeerFile, wait: Wait = 60.0) -> None:
    """Take back what was asked for at this site, by extend, stop or roster, and has not been decided yet.

    A wish stands until enough sites are there to decide it, also when the peer is started again. `securedfl roster
    show` tells whether one stands. What the log has decided can only be changed by another wish. The peer need not run.

    **Example**

    - `securedfl withdraw hospital-a.toml`
    """
    from securedfl.federation.peers.config import PeerConfig
    from securedfl.network.operator import withdraw as take_back

    typer.echo(take_back(PeerConfig.load(config).state, wait))
