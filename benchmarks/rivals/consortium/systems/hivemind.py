"""hivemind: a DecentralizedAverager at each site, found through a DHT whose first member is site 0."""

from __future__ import annotations

from typing import ClassVar

from ..system import HERE, System


class Hivemind(System):
    name = "hivemind"
    environment = "hivemind"
    settings = (
        "DecentralizedAverager with its defaults for matchmaking (5 s, groups of 2 or more); next_chunk_timeout=5, "
        "allreduce_timeout=30, step(timeout=30) with retries; a site that was started again loads state and round from "
        "its peers"
    )
    packages = ("hivemind", "torch")
    without: ClassVar = {"stale": "no roster: whoever knows an address may join, with any key"}

    def site(self, k: int, *, stale: bool) -> list[str]:
        return [str(self.place.python), str(HERE / "sites" / "hivemind_site.py"), self.place.machines.addresses[k]]
