"""A peer that lies: it runs an honest core, and then says other things than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securedfl.network.log.messages import Gossip

if TYPE_CHECKING:
    from tests.network.world.site import Site


class Liar:
    """Changes what its site sends."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def send(self, peers: tuple[int, ...], message: Gossip) -> None:
        """Send something to each."""
        for peer in peers:
            self._site.world.send(self._site.number, peer, message)
