"""Before training: whether everything is in place at this site, and whether it reaches all others."""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from securedfl.errors import ConfigError, PeerLostError, SecuredFLError
from securedfl.federation.budget.planning import check_privacy
from securedfl.federation.checking.opening import WITHIN, Examined, opening
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.site import check_keys, pass_federation
from securedfl.network.core.messages import encode
from securedfl.network.journal import in_use, look_into
from securedfl.network.letters import Hello, Ways, differences, unpack
from securedfl.network.operator import Wish, want
from securedfl.network.shell import CLOCK_SLACK
from securedfl.network.wire.contact.look import look_at
from securedfl.network.wire.identity import Identity
from securedfl.network.wire.links import Links
from securedfl.network.wire.values import ControlMessage, Endpoint, Event, LinkUp, Reach
from securedfl.network.words import ways_in_words
from securedfl.privacy.run_certificate import told

PATIENCE = 5.0
"""Seconds that another site has to answer."""
REFUSED = os.strerror(errno.ECONNREFUSED).lower()
"""Why nobody is reached at an address at which nobody listens."""
COURTESY = 1.0
"""Seconds that this site stays when it knows all, so that the others hear it too."""


def check(path: Path, *, wait: float = 0.0, within: float = WITHIN) -> list[Examined]:
    """Look at everything that a peer needs before it starts; no parameter is sent.

    Parameters
    ----------
    path
        Of ``peer.toml``.
    wait
        Seconds to wait for the others, who may run the same check: meanwhile this site answers them.
    within
        Seconds that the app may take to be made and to open this site's data (see `opening`); 0 leaves that out.
    """
    config = PeerConfig.load(path)
    findings = [
        _look("own keys", lambda: check_keys(config.files(), config.name)),
        _look("state folder", lambda: look_into(config.state)),
    ]
    try:
        federation = FederationConfig.load(config.federation)
        config.position(federation)
    except SecuredFLError as error:
        return [Examined("federation.toml", False, str(error)), *findings]
    # an app may choose what concerns the common model, which is known when it runs
    shared = {key: value for key, value in federation.told.items() if not (federation.entry and ".common_" in key)}
    about = [Examined("federation.toml", True, f"{len(federation.peers)} peers, hash {federation.hash}")]
    try:
        design = federation.design
    except SecuredFLError as error:
        about.append(Examined("design", False, str(error)))
    else:
        shared["design"] = design.hash
        about.append(Examined("design", True, f"gap {design.gap}, hash {design.hash}"))
        about.append(_look("privacy", lambda: _promise(federation)))
    findings = [*about, *findings]
    running = in_use(config.state)
    with ExitStack() as stack:
        # while the others are waited for; a peer that runs has opened it itself
        answer = stack.enter_context(opening(path, federation, within)) if within and not running else None
        relays = stack.enter_context(ThreadPoolExecutor(1)).submit(_relays, config, federation)
        others: list[Examined] = []
        if running:
            others = [_look("running peer", lambda: want(config.state, Wish("look"), PATIENCE))]
        elif all(finding.ok for finding in findings[-2:]):
            others = _others(config, federation, shared, wait)
        if answer is not None:
            findings.append(answer())
        # a relay that is missing keeps nobody from a run in which all are reached without it
        apart = not all(other.ok for other in others)
        others += [replace(relay, ok=relay.ok or (relay.lost and not apart)) for relay in relays.result()]
    return [*findings, *others]


def failure(findings: Sequence[Examined]) -> SecuredFLError | None:
    """Return the error that tells what is not fine, None if all is; that sites are merely missing is another one."""
    bad = [finding for finding in findings if not finding.ok]
    if not bad:
        return None
    named = "; ".join(f"{finding.subject}: {finding.text}" for finding in bad)
    kind = PeerLostError if all(finding.lost for finding in bad) else ConfigError
    return kind(f"{len(bad)} of {len(findings)} checks failed: {named}")


def _others(config: PeerConfig, federation: FederationConfig, shared: dict[str, str], wait: float) -> list[Examined]:
    """Return who is reached, or why this site cannot listen."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    try:
        links = Links(
            config.name,
            config.files(),
            federation.roster,
            on_event=events.put,
            listen=config.listens_at(federation),
            relays=federation.relay_roster,
            proxy=config.proxy,
        )
    except ConfigError as error:
        return [Examined("listening", False, str(error))]
    with closing(links):
        return _meet(links, events, shared, max(wait, PATIENCE), stay=bool(wait))


def _relays(config: PeerConfig, federation: FederationConfig) -> list[Examined]:
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
            todo = "start `securedfl relay` there, or check address and firewall"
            return Examined(subject, False, f"is not reached: {error}; {todo}", True)
        except (SecuredFLError, ValueError) as error:
            return Examined(subject, False, f"does not fit: {error}")
        return Examined(subject, True, "reached")

    async def look_at_all() -> list[Examined]:
        return await asyncio.gather(*map(look, federation.relay_roster))

    return asyncio.run(look_at_all())


def _meet(
    links: Links, events: queue.SimpleQueue[Event], shared: dict[str, str], wait: float, *, stay: bool
) -> list[Examined]:
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
            links.send(event.peer, encode(Hello(shared, time.time())))
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
    reaches = links.reaches()
    return [
        _finding(name, ways.get(name, reaches[name]), greetings.get(name), theirs.get(name), shared)
        for name in sorted(others)
    ]


def _finding(
    name: str, reach: Reach, greeting: tuple[Hello, float] | None, ways: Ways | None, shared: dict[str, str]
) -> Examined:
    """Say how a peer was reached, whom it reaches, and what differs; a greeting says how far its clock was ahead."""
    if not reach.linked:
        why = f"{reach.reason}{what_to_do(reach.reason)}"
        return Examined(name, False, f"{'does not fit' if reach.unfit else 'does not answer'}: {why}", not reach.unfit)
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
    theirs = {key: value for key, value in hello.settings.items() if key in shared}
    if found := differences({key: value for key, value in shared.items() if key in theirs}, theirs):
        ok = False
        text.append(f"it has other settings: {found}")
    return Examined(name, ok, "; ".join(text))


def what_to_do(reason: str) -> str:
    """Return what to do about a connection that a site refuses; nothing if a proxy or a relay does."""
    address, _, why = reason.rpartition(": ")
    if why != REFUSED or " " in address:
        return ""
    return "; its peer may not run yet: start it there with `securedfl peer PEER.toml`, or check address and firewall"


def _look(subject: str, work: Callable[[], str]) -> Examined:
    """Return what a look at something gave, or why it failed."""
    try:
        return Examined(subject, True, work())
    except SecuredFLError as error:
        return Examined(subject, False, str(error), isinstance(error, PeerLostError))


def _promise(federation: FederationConfig) -> str:
    check_privacy(federation.training, real=True)
    return told(pass_federation(federation)) or "certified"
