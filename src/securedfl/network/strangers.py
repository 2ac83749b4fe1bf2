"""Peers of the roster that have another run: other settings, or another model. Pure: it is told the time."""

from __future__ import annotations

from collections.abc import Mapping

from securedfl.network.letters import GENESIS, RUN, differences

PATIENCE = 10.0
"""Seconds that a peer stays after it has met another run than its own, so that all others hear of it too."""


class Strangers:
    """Who has another run than this peer, and whether that ends it.

    Parameters
    ----------
    mine
        What this peer tells the others when it meets them.
    lying
        How many peers may lie: so many alone end nobody.
    name
        Of this peer.
    """

    def __init__(self, mine: Mapping[str, str], lying: int = 0, name: str = "") -> None:
        self._mine, self._lying, self._name = dict(mine), lying, name
        self._found: dict[str, str] = {}
        self._until = 0.0
        self._unread: dict[str, float] = {}

    def refuse(self, name: str, now: float) -> None:
        """Take note that the beginning of another peer's log does not fit what this peer's files say."""
        self._unread.setdefault(name, now)

    def hear(self, name: str, theirs: dict[str, str], now: float) -> str:
        """Take note of what another peer tells; return what differs, in words, or an empty string."""
        mine = self._mine
        if not theirs.keys() & {RUN, "model"}:
            # `securedfl check`, which knows neither: what it does not tell is not another setting
            mine = {key: value for key, value in mine.items() if key in theirs}
        elif GENESIS not in theirs:
            # of an earlier version
            mine = {key: value for key, value in mine.items() if key != GENESIS}
        found = differences(mine, theirs)
        text = found and f"{name} has other settings: {found}; all sites need the same federation.toml, model, coding"
        own = f"{self._name}.fingerprint"
        if own in mine and own not in theirs:
            # who began the run is part of it, and the other does not count this peer among them
            text += f"; if {self._name} was added later, mark its entry with added = true"
        if all(theirs.get(key, mine.get(key)) == mine.get(key) for key in (RUN, GENESIS)):
            self._found.pop(name, None)
        else:
            self._until = self._until if self._found else now + PATIENCE
            self._found[name] = text
        return text

    def has_another_log(self, name: str) -> bool:
        """Whether what a peer told last is of another run, or of one that begins otherwise."""
        return name in self._found

    def trouble(self, now: float, *, begun: bool) -> str:
        """Return why this peer can never begin; empty if it can, or while others may not have heard of it yet.

        Once a run has begun it goes on: then it is the other peer that cannot take part.
        """
        foreign = len(self._found) > self._lying and now >= self._until
        if begun or not (foreign or (self._unread and now > min(self._unread.values()) + PATIENCE)):
            return ""
        if len(self._unread) > self._lying:
            return (
                f"the log of {', '.join(sorted(self._unread))} begins otherwise than this site's federation.toml says; "
                "use the file as it was when the run began, with the same rounds, deadlines, addresses and fingerprints"
            )
        return "; ".join(sorted(self._found.values())) + "; mend that, then start all sites again" if foreign else ""
