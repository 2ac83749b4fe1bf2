"""``securedfl stop``: end a run, for all peers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securedfl.errors import ConfigError

if TYPE_CHECKING:
    from securedfl.network.operator import Wish

OWN = "This site's settings."
PeerFile = Annotated[Path, typer.Argument(metavar="PEER.toml", help=f"{OWN[:-1]}; its peer runs.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for the decision.")]


def stop(
    config: PeerFile,
    reason: Annotated[str, typer.Option(help="Why, for the logs of all sites.")] = "an operator ended it",
    wait: Wait = 60.0,
) -> None:
    """End the run for all peers, for good. Nothing else ends a run before its last round.

    **Example**

    - `securedfl stop hospital-a.toml --reason "the trial is over"`
    """
    from securedfl.network.operator import Wish

    typer.echo(wanted(config, Wish("stop", reason=reason), wait))


def wanted(config: Path, wish: Wish, wait: float) -> str:
    """Ask this site's peer for a change, and return what became of it; a peer that does not run has its log asked."""
    from securedfl.federation.checking.standing import own_log
    from securedfl.federation.peers.config import FederationConfig, PeerConfig
    from securedfl.network.core.state import Rules
    from securedfl.network.journal import in_use
    from securedfl.network.operator import want, why_not

    site = PeerConfig.load(config)
    if not in_use(site.state):
        federation = FederationConfig.load(site.federation)
        state = own_log(site, federation)
        # what else the rules say needs the model, and is left to the others
        rules = Rules(lying=federation.lying, least=min(federation.fewest, len(federation.first)))
        if state is not None and (why := why_not(wish, state, site.name, rules)):
            raise ConfigError(
                f"{why}. So says the log at this site, whose peer does not run; if the others may be further, start it "
                "with `securedfl peer`, then ask again"
            )
    return want(site.state, wish, wait)
