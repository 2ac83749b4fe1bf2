"""p2pfl: a node at each site, each connected with all others by gRPC and mutual TLS."""

from __future__ import annotations

import signal
import time

from ..keys import Authority
from ..system import HERE, System

PORT = 6666
LATE = 60.0
"""Seconds that others have to end after most nodes have."""


class P2pfl(System):
    name = "p2pfl"
    environment = "p2pfl"
    settings = (
        "a node in a process at each site, all connected with all, mutual TLS; defaults, but a node counts as gone "
        "after 15 s without a heartbeat, votes and models are waited for 30 s, all sites train in each round; a "
        "checkpoint at each node after each round"
    )
    packages = ("p2pfl", "grpcio")
    stays = True
    # a round with somebody missing takes as long as its timers say, about a minute
    patience = 2.0
    refusal = r"Handshake failed with error .*"

    def prepare(self) -> None:
        addresses = self.place.machines.addresses
        for name in ("keys", "stale"):
            authority = Authority(self.place.folder / name)
            for k, address in enumerate(addresses):
                authority.issue(f"site-{k}", [address])
        self._first = 0.0

    def site(self, k: int, *, stale: bool) -> list[str]:
        all_of_them = [f"{address}:{PORT}" for address in self.place.machines.addresses]
        others = [address for other, address in enumerate(all_of_them) if other != k]
        keys = str(self.place.folder / ("stale" if stale else "keys"))
        return [str(self.place.python), str(HERE / "sites" / "p2pfl_site.py"), keys, all_of_them[k], *others]

    def anew(self) -> str:
        notes, machines = self.place.notes, self.place.machines
        for path in (*notes.glob("ready-*"), notes / "begun"):
            path.unlink(missing_ok=True)
        for k in range(self.place.hour.sites):
            machines.signal(k, signal.SIGKILL)
        return "all nodes are ended and begin again from the first node's checkpoint"

    def ended(self) -> bool:
        notes = [path.read_text() for path in self.place.notes.glob("site-*.jsonl")]
        done = sum('"ended"' in text for text in notes)
        if done > self.place.hour.sites // 2 and not self._first:
            self._first = time.monotonic()
        return done == self.place.hour.sites or (self._first > 0 and time.monotonic() > self._first + LATE)
