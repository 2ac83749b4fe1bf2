"""Decided entries for those that lack them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from securedfl.network.core.events import Send
from securedfl.network.core.messages import MOST_ENTRIES, Decided, Gossip
from securedfl.network.core.state import State


class Supply:
    """How long the logs of others are, as they say, and what was sent to them."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}
        self._sent: dict[int, tuple[int, float]] = {}

    def next(self, peers: Iterable[int], state: State, log: Sequence[Decided], now: float) -> list[Send]:
        """Return the next entries for each of these peers; the same ones again only after a heartbeat."""
        sends = []
        for peer in sorted(peers):
            length = self.lengths.get(peer, state.length)
            sent, at = self._sent.get(peer, (-1, now))
            if length < state.length and (length != sent or now - at >= state.settings.heartbeat):
                self._sent[peer] = (length, now)
                sends.append(Send((peer,), Gossip(state.run, decided=tuple(log[length : length + MOST_ENTRIES]))))
        return sends
