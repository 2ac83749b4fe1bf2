"""The world: a virtual clock, links, and the events that make time pass."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any

from securedfl.network.core.core import Core
from securedfl.network.core.entries import Line, Settings
from securedfl.network.core.events import Link
from securedfl.network.core.messages import Gossip, decode, encode
from securedfl.network.core.state import State, reduce
from tests.network.world.checks import Checks, ViolationError
from tests.network.world.data import rules_for
from tests.network.world.schedule import HEALED, Fault, Schedule
from tests.network.world.site import Site

PATIENCE = 400.0
"""Virtual seconds after the last fault within which everybody must have finished."""
SETTINGS = Settings(rounds=1, train=15.0, average=6.0, absent=25.0, heartbeat=1.0)


class Brief(Core):
    """A core that drops old votes early, so that short logs show it."""

    stretch = 4


class World:
    """One federation, and everything around it.

    Parameters
    ----------
    schedule
        What happens.
    story
        Takes lines that tell it.
    core
        The core to examine; tests break it on purpose.
    """

    def __init__(
        self, schedule: Schedule, story: Callable[[str], None] | None = None, core: type[Core] = Brief
    ) -> None:
        self.schedule, self._story, self.core = schedule, story, core
        self.rng = Random(f"world {schedule.seed}")
        self.now, self._queue, self._count = 0.0, list[tuple[float, int, Callable[..., None], tuple[Any, ...]]](), 0
        self.counts: Counter[str] = Counter()
        self.cuts: Counter[tuple[int, int]] = Counter()
        self.slow, self.bad = 0, 0
        self.ambushes: list[Fault] = []
        self._arrivals: dict[tuple[int, int], float] = {}
        self.rules = rules_for(schedule)
        roster = tuple(self.peer(number) for number in range(schedule.peers))
        self.genesis = State(f"run {schedule.seed}", roster, _settings(schedule.rounds))
        self._states = [self.genesis]
        self.checks = Checks(self)
        self.sites = [Site(self, number) for number in range(schedule.peers)]
        self.changed = True

    @staticmethod
    def peer(number: int, key: int = 0) -> Line:
        """Return a line of the roster."""
        return Line(number, f"p{number}", f"host{number}:1", f"key {number} {key}".encode())

    def tell(self, line: str) -> None:
        """Add to the story."""
        if self._story is not None:
            self._story(f"{self.now:8.3f}  {line}")

    def at(self, time: float, what: Callable[..., None], *args: Any) -> None:
        """Let something happen at a time."""
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, what, args))

    def state_before(self, index: int) -> State:
        """Return the state before an entry, computed here from the entries that were decided."""
        while len(self._states) <= index:
            last = len(self._states) - 1
            self._states.append(reduce(self._states[last], self.checks.log[last], self.rules))
        return self._states[index]

    def committed(self) -> None:
        """Let those be killed who were to be once all had shared."""
        from tests.network.world.faults import kill

        ambushes, self.ambushes = self.ambushes, []
        for fault in ambushes:
            self.at(self.now, kill, self, fault)

    def noticed(self, site: Site) -> None:
        """Let those linked with a process learn soon that it began, or that it is gone, if they do at all."""
        for other in self.sites if self.schedule.prompt else ():
            if other is not site and self.connected(site.number, other.number):
                # after everything that it sent, as over TCP
                last = self._arrivals.get((site.number, other.number), 0.0)
                self.at(max(last, self.now) + self.delay(), self._notice, other, site)

    def _notice(self, other: Site, site: Site) -> None:
        other.happen(Link(site.number, up=site.core is not None))

    def connected(self, one: int, other: int) -> bool:
        """Say whether messages pass from one to the other."""
        return self.cuts[one, other] == 0

    def delay(self) -> float:
        """Return how long a message takes."""
        usual = self.schedule.delay * (0.5 + self.rng.expovariate(1.0))
        return usual * 20 if self.slow else usual

    def send(self, sender: int, receiver: int, message: Any) -> None:
        """Move a message, or lose it."""
        drop, rng = self.schedule.drop + (0.25 if self.bad else 0.0), self.rng
        if receiver >= len(self.sites):
            return
        if not self.connected(sender, receiver) or (drop and self.now < HEALED and rng.random() < drop):
            self.counts["messages lost"] += 1
            return
        self.counts["messages"] += 1
        if self.schedule.encoded and isinstance(message, Gossip):
            copy = decode(encode(message))
            if copy != message:
                raise ViolationError("bytes", f"a message does not survive its bytes: {message}")
        self._deliver(self.now + self.delay(), sender, receiver, message)
        if self.schedule.duplicate and rng.random() < self.schedule.duplicate:
            self.counts["messages twice"] += 1
            self._deliver(self.now + 5 * self.delay(), sender, receiver, message)

    def _deliver(self, time: float, sender: int, receiver: int, message: Any) -> None:
        self._arrivals[sender, receiver] = max(time, self._arrivals.get((sender, receiver), 0.0))
        self.at(time, self.sites[receiver].arrive, sender, message)

    def sign(self, key: bytes, data: bytes) -> bytes:
        """Return a signature that nobody can make who does not ask for this key."""
        return blake2b(data, key=b"secret of " + key, digest_size=16).digest()

    def run(self) -> None:
        """Let it all happen; a violation is an error."""
        from tests.network.world.faults import begin

        for site in self.sites:
            self.at(self.rng.uniform(0, 0.5), site.start)
        end = 0.0
        for fault in self.schedule.faults:
            self.at(fault.at, begin, self, fault)
            end = max(end, min(HEALED, fault.at + fault.lasts))
        self.at(HEALED, self._heal)
        limit = HEALED + PATIENCE
        while self._queue:
            time, _, what, args = heapq.heappop(self._queue)
            if time > limit:
                break
            self.now = time
            what(*args)
            if self.changed and self.now > end:
                self.changed = False
                if self._finished() and not any(fault.at > self.now for fault in self.schedule.faults):
                    self.tell("everybody has finished")
                    return
        where = ", ".join(f"{site.number}: {site.where}" for site in self.sites)
        raise ViolationError("stuck", f"not everybody has finished {PATIENCE:.0f} s after the last fault ({where})")

    def _heal(self) -> None:
        """End all faults."""
        self.tell("no more faults")
        self.slow = self.bad = 0
        self.cuts.clear()
        for site in self.sites:
            site.heal()
        self.changed = True

    def _finished(self) -> bool:
        """Say whether every honest peer of the roster knows that the run is over and has the last model."""
        state = self.state_before(len(self.checks.log))
        if not state.over or self.now < self.schedule_end():
            return False
        members = [self.sites[peer.number] for peer in state.roster]
        return all(site.lies or site.gone or site.has_finished(state) for site in members)

    def schedule_end(self) -> float:
        """Return when the last fault begins."""
        return max((fault.at for fault in self.schedule.faults), default=0.0)


def _settings(rounds: int) -> Settings:
    return Settings(rounds, SETTINGS.train, SETTINGS.average, SETTINGS.absent, SETTINGS.heartbeat)
