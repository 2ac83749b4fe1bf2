"""Before training: whom this site reaches and how, whether they fit, and who is joined by whom."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from securedfl.errors import ConfigError, PeerLostError, SecuredFLError
from securedfl.federation.checking.opening import Examined
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.network.core.messages import encode
from securedfl.network.letters import Hello, Ways, differences, unpack
from securedfl.network.shell import CLOCK_SLACK
from securedfl.network.wire.contact.look import look_at
from securedfl.network.wire.identity import Identity
from securedfl.network.wire.links import Links
from securedfl.network.wire.values import ControlMessage, Endpoint, Event, LinkUp, Reach
from securedfl.network.words import ways_in_words

PATIENCE = 5.0
"""Seconds that another site has to answer."""
COURTESY = 1.0
"""Seconds that this site stays when it knows all, so that the others hear it too."""


@dataclass(frozen=True)
class Meeting:
    """Who is met: this site's settings, those of all, the roster as it is now, what is told and what is compared."""

    config: PeerConfig
    federation: FederationConfig
    roster: Sequence[Endpoint]
    told: Mapping[str, str]
    compared: frozenset[str]

    def findings(self, wait: float) -> list[Examined]:
        """Return who is reached within the time, and who is joined by whom."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        try:
            links = Links(
                self.config.name,
                self.config.files(),
                self.roster,
                on_event=events.put,
                listen=self.config.listens_at(self.federation),
                relays=self.federation.relay_roster,
                proxy=self.config.proxy,
            )
        except ConfigError as error:
            return [Examined("links", False, str(error))]
        with closing(links):
            return self._meet(links, events, max(wait, PATIENCE), stay=bool(wait))

    def _meet(self, links: Links, events: queue.SimpleQueue[Event], wait: float, *, stay: bool) -> list[Examined]:
        """Greet everybody who is linked within the time, and return what is known of each peer."""
        deadline, greetings, ways = time.monotonic() + wait, dict[str, tuple[Hello, float]](), dict[str, Reach]()
        theirs = dict[str, Ways]()
        others, late = set(links.reaches()), False
        while (left := deadline - time.monotonic()) > 0:
            try:
                event = events.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(event, LinkUp):
                ways[event.peer] = Reach(True, event.through)
                links.send(event.peer, encode(Hello(dict(self.told), time.time())))
                for name in ways:
                    links.send(name, encode(Ways.of(links.reaches())))
            elif isinstance(event, ControlMessage) and isinstance(letter := unpack(event.data), Hello | Ways):
                if isinstance(letter, Hello):
                    # now: when the waiting ends, the clock that it tells is old
                    greetings[event.peer] = letter, letter.clock - time.time()
                else:
                    theirs[event.peer] = letter
            if greetings.keys() == others and not late:
                late, deadline = True, min(deadline, time.monotonic() + (COURTESY if stay else 0.0))
        reaches = {**links.reaches(), **ways}
        found = [self._finding(name, reaches[name], greetings.get(name), theirs.get(name)) for name in sorted(others)]
        return [*found, *joined({self.config.name: Ways.of(reaches), **theirs})]

    def _finding(self, name: str, reach: Reach, greeting: tuple[Hello, float] | None, ways: Ways | None) -> Examined:
        """Say how a peer is reached, whom it reaches, and what differs; a greeting tells how far ahead its clock is."""
        if not reach.linked:
            kind = "does not fit" if reach.unfit else "does not answer"
            return Examined(name, False, f"{kind}: {reach.reason}", not reach.unfit)
        text, ok = [f"reached through {reach.through}" if reach.through else "reached directly"], True
        if greeting is None:
            return Examined(name, False, f"{text[0]}, but it says nothing; does it run the same version?")
        if ways is not None and ways.peers:
            text.append(f"it reaches {ways_in_words(ways.peers)}")
        hello, ahead = greeting
        if abs(ahead) > CLOCK_SLACK:
            ok = False
            text.append(f"its clock is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}")
        # a peer that runs knows its model too, which a check does not
        theirs = {key: value for key, value in hello.settings.items() if key in self.compared}
        if found := differences({key: self.told[key] for key in theirs}, theirs):
            ok = False
            text.append(f"it has other settings: {found}")
        return Examined(name, ok, "; ".join(text))


def joined(ways: Mapping[str, Ways]) -> list[Examined]:
    """Return which pairs have no link of their own, and which relay or peer joins them, as either of them says."""
    pairs: dict[str, set[tuple[str, str]]] = {}
    for name, known in ways.items():
        for other, through in known.peers.items():
            if through:
                first, second = sorted((name, other))
                pairs.setdefault(through, set()).add((first, second))
    return [
        Examined(f"through {third}", True, ", ".join(f"{one} and {other}" for one, other in sorted(found)))
        for third, found in sorted(pairs.items())
    ]


def relays_of(config: PeerConfig, federation: FederationConfig) -> list[Examined]:
    """Return for every relay that is named whether it is reached, and is the right one."""
    try:
        identity = Identity(config.files(), config.name)
    except ConfigError:
        # that is told already, of this site's own keys
        return []

    async def look(relay: Endpoint) -> Examined:
        subject = f"relay {relay.name}"
        try:
            await look_at(relay, identity, proxy=config.proxy, timeout=PATIENCE)
        except PeerLostError as error:
            return Examined(subject, False, f"is not reached: {error}", True)
        except (SecuredFLError, ValueError) as error:
            return Examined(subject, False, f"does not fit: {error}")
        return Examined(subject, True, f"reached at {relay.address}")

    async def look_at_all() -> list[Examined]:
        return await asyncio.gather(*map(look, federation.relay_roster))

    return asyncio.run(look_at_all())


def unneeded(others: Sequence[Examined], over: str) -> list[Examined]:
    """Return what was found of others, of whom nobody need be there when the run is ``over``, which says why."""
    return [
        replace(other, ok=True, lost=False, text=f"nobody need be there, {over}") if over and other.lost else other
        for other in others
    ]


def forgiven(relays: Sequence[Examined], others: Sequence[Examined]) -> list[Examined]:
    """Return relays, where one that is missing is fine if all are reached without it: it keeps nobody from the run."""
    apart = not all(other.ok for other in others)
    return [replace(relay, ok=relay.ok or (relay.lost and not apart)) for relay in relays]
