"""One site of the world: a process that may stop at any action, its disk, and the shell around its core."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from securedfl.network.core import events as ev
from securedfl.network.core.core import Core
from securedfl.network.core.entries import Ask, Try
from securedfl.network.core.messages import Decided, Failure, Gossip, Record, Result, Stored, decode_record, encode
from securedfl.network.core.state import State
from securedfl.network.core.views import GRACE, SILENCE
from securedfl.protocols.steps import Array
from tests.network.world.data import SIZE, Part
from tests.network.world.disk import Disk, Keys
from tests.network.world.liar import Liar

if TYPE_CHECKING:
    from tests.network.world.world import World


class Stopped(Exception):  # noqa: N818
    """The process stopped in the middle of its actions."""


class Site:
    """A peer's process and disk.

    Parameters
    ----------
    world, number
        Where it is, and whose.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number, self.lies = world, number, number in world.schedule.liars
        self.rng = world.rng
        self._folders = 0
        self.disk = self.new_disk()
        self.core: Core | None = None
        self.rate = 1 + world.schedule.skew * self.rng.uniform(-1, 1)
        self.offset = self.rng.uniform(0, 1e6)
        self.doom: tuple[int, str] | None = None
        self.full = self.slow_training = self.gone = False
        self.process = 0
        self.command: Ask | None = None
        self.part: Part | None = None
        self._at: tuple[int, int] = (-1, -1)
        self._mail: dict[tuple[int, int, tuple[int, ...] | None, int], dict[int, Any]] = {}
        self._wake: float | None = None
        self._fetch: ev.Fetch | None = None
        self._progress, self._trainings = 0.0, 0
        self._seen = 0
        self.liar = Liar(self) if self.lies else None

    def new_disk(self) -> Disk:
        """Return an empty disk."""
        self._folders += 1
        return Disk(f"folder {self.number}.{self._folders}")

    @property
    def where(self) -> str:
        """Where it is, in words."""
        if self.core is None:
            return "down"
        state = self.core.state
        model = self.core.views.statuses[self.number].model if self.number in self.core.views.statuses else None
        return f"index {state.length}, round {state.round}.{state.attempt} {state.phase}, model {model}"

    def has_finished(self, state: State) -> bool:
        """Say whether it knows the whole log and has the model."""
        if self.core is None or self.core.state.length != state.length or self.core.state.past != state.past:
            return False
        return state.model.round < 0 or any(r.digest == state.model.digest for r in self.disk.results)

    @property
    def clock(self) -> float:
        """What its clock says."""
        return self.offset + self.rate * self.world.now

    # Life and death of the process

    def start(self) -> None:
        """Start the process, if it does not run."""
        if self.core is not None or self.gone:
            return
        if self.full:
            self.world.at(self.world.now + 2.0, self.start)
            return
        world, disk, self._keys = self.world, self.disk, Keys(self.world, self.number)
        if world.schedule.encoded:
            disk.records = [record for r in disk.records if (record := decode_record(encode(r))) is not None]
        self.core = world.core(
            Stored().add(*disk.records),
            me=self.number,
            genesis=world.genesis,
            rules=world.rules,
            signer=self._keys,
            incarnation=disk.incarnation,
            now=self.clock,
        )
        if self.process % 2:
            disk.rewrite(self.core.log)
        self.process += 1
        self._wake = None
        self._seen = self.core.state.length
        if not self.lies:
            world.checks.grown(self, self.core, 0, self._seen)
        world.tell(f"peer {self.number} starts, {self.where}")
        for other in range(len(world.sites)):
            if other != self.number and world.connected(self.number, other):
                self.happen(ev.Link(other))
        world.noticed(self)
        for result in sorted(disk.results, key=lambda r: (r.round, r.attempt)):
            self.happen(result)
        if self.command is not None:
            self.happen(ev.Command(self.command))
        self.happen(ev.Tick())

    def stop(self, why: str = "stops") -> None:
        """End the process at once."""
        if self.core is not None:
            self.world.tell(f"peer {self.number} {why}")
            self.world.changed = True
        self.core, self.part, self._fetch, self.doom = None, None, None, None
        self._mail = {}
        self.world.noticed(self)

    def heal(self) -> None:
        """End what is wrong here."""
        self.full = self.slow_training = False
        self.doom = None
        if self.liar is not None:
            self.liar.heal()
        for other in range(len(self.world.sites)):
            if other != self.number:
                self.happen(ev.Link(other))
        self.start()

    def happen(self, event: ev.Event) -> None:
        """Tell the core, and do what it says, unless the process stops in the middle."""
        core = self.core
        if core is None:
            return
        actions = core.step(event, self.clock)
        try:
            for action in actions:
                self._do(action)
        except Stopped:
            return
        assert self._seen == core.state.length, "something was decided and not written"
        self._use_key(core)

    def _use_key(self, core: Core) -> None:
        mine = core.state.peer(self.number)
        if mine is not None and self._keys.follow(mine.key):
            self._soon(ev.Tick())

    def later(self, process: int, event: ev.Event) -> None:
        """Tell the core, if it is still the same process."""
        if process == self.process:
            self.happen(event)

    def _soon(self, event: ev.Event, seconds: float = 0.0) -> None:
        self.world.at(self.world.now + seconds, self.later, self.process, event)

    def _do(self, action: ev.Action) -> None:
        if self.doom is not None:
            left, how = self.doom
            self.doom = (left - 1, how)
            if left <= 0:
                if isinstance(action, ev.Write) and how == "crash" and self.rng.random() < 0.5:
                    self.disk.append(action.record)
                if isinstance(action, ev.Write) and how == "crash, write torn":
                    torn = encode(action.record)
                    assert decode_record(torn[: self.rng.randrange(len(torn))]) is None
                self.stop(f"stops ({how}) at {type(action).__name__}")
                raise Stopped
        match action:
            case ev.Write(record):
                if self.full:
                    self.stop("stops: the disk is full")
                    self.world.at(self.world.now + 2.0, self.start)
                    raise Stopped
                self.disk.append(record)
                self._written(record)
            case ev.Send(peers, message):
                self._send(peers, message)
            case ev.Wake(at):
                self._wake_at(self.world.now + max(0.0, (at - self.clock) / self.rate))
            case ev.Tell():
                if action.what != "decided":
                    self.world.tell(f"  peer {self.number}: {action.what} {action.peers} {action.detail}")
            case _:
                self._data(action)

    def _written(self, record: Record) -> None:
        if isinstance(record, Decided) and record.index == self._seen:
            assert self.core is not None
            if not self.lies:
                self.world.checks.grown(self, self.core, self._seen, record.index + 1)
            self._seen, self.world.changed = record.index + 1, True

    def _send(self, peers: tuple[int, ...], message: Gossip) -> None:
        if self.liar is not None:
            self.liar.send(peers, message)
            return
        self.world.checks.sent(self, message)
        for peer in peers:
            self.world.send(self.number, peer, message)

    def _wake_at(self, time: float) -> None:
        if self._wake is None or time < self._wake - 1e-9:
            self._wake = time
            self.world.at(time, self._tick, time, self.process)

    def _tick(self, time: float, process: int) -> None:
        if time == self._wake and process == self.process:
            self._wake = None
            self.happen(ev.Tick())

    def arrive(self, sender: int, message: Any) -> None:
        """Take a message from a link."""
        if self.core is None:
            return
        if isinstance(message, Gossip):
            self.happen(ev.Received(sender, message))
            return
        now, tag, step, payload = message
        self._mail.setdefault((*now, tag, step), {})[sender] = payload
        if now == self._at:
            self._pump()

    # The data plane

    def _data(self, action: ev.Action) -> None:
        world = self.world
        match action:
            case ev.Train(round, again):
                self._train(round, again)
            case ev.Share(now, members):
                assert self.disk.update is not None
                identity, vector = self.disk.update
                assert identity[2] == now.round
                self._at = (now.round, now.attempt)
                world.checks.shares(self, self._at, identity, vector)
                if not world.rules.can_lose:
                    world.checks.opens(self, self._at, members, whole=True)
                seed = self.rng.getrandbits(32)
                self.part = Part(world.schedule.protocol, now.round, members, self.number, vector.copy(), seed)
                world.at(world.now, self._pump)
            case ev.Open(lost):
                self._open(lost)
            case ev.Stop():
                self.part = None
            case ev.Fetch():
                self._fetch = action
                world.at(world.now, self._try_to_fetch, action, self.process)
            case ev.Apply(Result(round, attempt, digest)):
                found = [(r, v) for r, v in self.disk.results.items() if (r.round, r.digest) == (round, digest)]
                if not self.lies:
                    world.checks.applies(self, round, attempt, digest, found[0][1] if found else None)
                self.disk.results = {r: v for r, v in self.disk.results.items() if r.round >= round}
                self.world.changed = True

    def _open(self, lost: tuple[int, ...]) -> None:
        assert self.part is not None
        if self.lies and self.part.held is None:
            # it said that it had shared, and has nothing to open
            return
        if not self.lies:
            self.world.checks.opens(self, self._at, self.part.members, whole=False)
        self.part.finish(lost)
        self.world.at(self.world.now, self._pump)

    def _train(self, round: int, again: bool) -> None:
        stored = self.disk.update
        if stored is not None and stored[0][2] == round:
            self._soon(ev.Update(round))
        elif again:
            self._soon(ev.Update(round, whole=False))
        else:
            self._trainings += 1
            seconds = self.rng.uniform(0.1, 2.0) + (30.0 if self.slow_training else 0.0)
            self.world.at(self.world.now + seconds, self._trained, round, self.process)

    def _trained(self, round: int, process: int) -> None:
        if process != self.process or self.core is None or self.core.state.round != round:
            return
        vector = np.array([self.rng.uniform(-1, 1) for _ in range(SIZE)])
        self.disk.update = ((self.number, self.disk.incarnation, round, self._trainings), vector)
        self.happen(ev.Update(round))

    def _pump(self) -> None:
        """Let the protocol go on as far as its messages are here."""
        part, now = self.part, self._at
        while part is not None and part is self.part and part.active:
            box = self._mail.get((*now, part.tag, part.step), {})
            if not part.needs <= box.keys():
                break
            sent = part.advance({peer: box[peer] for peer in part.needs})
            for peer, payload in (self.liar.spoiled(part, sent, now) if self.liar else sent).items():
                self.world.send(self.number, peer, (now, part.tag, part.step, payload))
            self._progress = self.world.now
            self.world.at(self.world.now + self.world.genesis.settings.average, self._look, part, self.process)
            if part.active:
                continue
            if part.result is None:
                self.world.checks.shared.setdefault(now, set()).add(self.number)
                self._soon(ev.Shared(Try(*now)))
            else:
                self._store(Result(*now, blake2b(part.result.tobytes(), digest_size=16).digest()), part.result)

    def _look(self, part: Part, process: int) -> None:
        """Say that an attempt makes no progress, if it waits for somebody that is ready."""
        average = self.world.genesis.settings.average
        if process != self.process or part is not self.part or not part.active or self.core is None:
            return
        if self.world.now < self._progress + average - 1e-6:
            return
        box = self._mail.get((*self._at, part.tag, part.step), {})
        ready = set(self.core.views.ready())
        peers = tuple(sorted(peer for peer in part.needs - box.keys() if part.tag is not None or peer in ready))
        if peers:
            # as a trial does: whoever is really lost, the core notices by itself
            grace = (SILENCE + GRACE + 1) * self.core.state.settings.heartbeat
            failure = Failure(*self._at, part.tag or (), peers)
            self.world.at(self.world.now + grace, self._fail, part, part.tag, process, failure)
        else:
            self.world.at(self.world.now + average, self._look, part, process)

    def _fail(self, part: Part, tag: tuple[int, ...] | None, process: int, failure: Failure) -> None:
        if process == self.process and part is self.part and part.active and part.tag == tag:
            self.happen(failure)

    def _store(self, result: Result, vector: Array) -> None:
        self.disk.results[result] = vector
        self._soon(result)

    def _try_to_fetch(self, fetch: ev.Fetch, process: int) -> None:
        world = self.world
        if process != self.process or fetch is not self._fetch or self.core is None:
            return
        holder, wanted = world.sites[self.rng.choice(fetch.holders)], fetch.result
        found = [v for r, v in holder.disk.results.items() if r.digest == wanted.digest and r.round == wanted.round]
        there = world.connected(self.number, holder.number) and world.connected(holder.number, self.number)
        if found and there and holder.core is not None:
            self._fetch = None
            world.at(world.now + 2 * world.delay(), self._fetched, wanted, found[0], process)
        else:
            world.at(world.now + 1.0, self._try_to_fetch, fetch, process)

    def _fetched(self, result: Result, vector: Array, process: int) -> None:
        if process == self.process:
            self._store(result, vector)
