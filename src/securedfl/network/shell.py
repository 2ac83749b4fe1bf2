"""The shell: one thread that feeds the core with what happened, and carries out what it says, in order.

The data plane of an attempt runs in a thread of its own (`trial`), and results are handed on in others (`handing`).
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import product, takewhile

from securedfl.errors import ConfigError, InvalidInputError, PeerLostError
from securedfl.network.arrivals import Arrivals
from securedfl.network.core import events as ev
from securedfl.network.core.core import UNPROVEN, Core
from securedfl.network.core.entries import Entry
from securedfl.network.core.messages import NO_RESULT, Gossip, Result, digest, encode
from securedfl.network.core.views import GRACE, SILENCE
from securedfl.network.data.averages import RunEndedError, check_finite
from securedfl.network.data.handing import Handing
from securedfl.network.data.parcels import Position
from securedfl.network.data.results import Results
from securedfl.network.data.trial import Trial, Work
from securedfl.network.journal import Journal
from securedfl.network.letters import GENESIS, Cards, Hello, Letter, Want, Ways, unpack
from securedfl.network.operator import Desk
from securedfl.network.progress import PeerSettings, Progress, check_key, endpoints_of, heard, removed
from securedfl.network.signing import Keyring
from securedfl.network.strangers import Strangers
from securedfl.network.wire import values as wire
from securedfl.network.wire.links import Links
from securedfl.network.words import in_words, is_bad, names_of
from securedfl.protocols.steps import Array

log = logging.getLogger("securedfl.peer")

CLOCK_SLACK = 5.0
"""Seconds that clocks may differ: certificates and logs are read by them."""

Told = Callable[[ev.Tell, Sequence[str]], None]


class Shell:
    """The running part of a peer.

    Parameters
    ----------
    settings, tell
        As for `Peer`.

    Attributes
    ----------
    events
        What happened; anybody may put something in, also an error that ends this peer.
    updates
        What this peer brings, by round.
    computed
        The results that were computed and not fetched.
    progress, failure, changed
        Where the log and this peer are; what ended the shell, if anything; and the condition under which they change.
    """

    def __init__(self, settings: PeerSettings, tell: Told) -> None:
        self.settings, self._tell = settings, tell
        self._journal = Journal(settings.folder, settings.genesis)
        try:
            self._begin(settings)
        except BaseException:
            # so that the folder is free when this process tries again
            self._journal.close()
            raise

    def _begin(self, settings: PeerSettings) -> None:
        """Read what is stored, and start all that runs."""
        self._keyring = Keyring(settings.files, settings.folder / "certificates")
        averages = settings.averages
        self.results = Results(settings.folder / "results", averages.result_size, averages.dtype)
        self._core = Core(
            self._journal.hand_over(),
            me=settings.number,
            genesis=self._journal.genesis,
            rules=settings.rules,
            signer=self._keyring,
            incarnation=self._journal.incarnation,
            now=time.monotonic(),
        )
        if other_key := check_key(settings, self._core.state, self._keyring.own):
            log.warning("%s", other_key)
        self.changed = threading.Condition()
        self.failure: BaseException | None = self._removed()
        self.progress = Progress(self._core.state, present=(settings.number,))
        self.updates: dict[int, Array] = {}
        self.computed: set[Result] = set()
        self.events = Arrivals()
        self._task: ev.Train | None = None
        self._applied = NO_RESULT
        self._trial: Trial | None = None
        self._desk = Desk(settings.folder)
        # who has said Hello on its link; once is enough, and fills no logs
        self._met: set[str] = set()
        self._wake = time.monotonic()
        self._says = {**settings.shared, GENESIS: digest(self._journal.genesis).hex()}
        self._strangers = Strangers(self._says, settings.rules.lying, settings.name)
        self._roster = self._core.state.roster
        self.links = Links(
            settings.name,
            settings.files,
            endpoints_of(self._roster, settings.name),
            on_event=self.events.put,
            listen=settings.listen,
            relays=settings.relays,
            proxy=settings.proxy,
        )
        self.events.counters = self.links.counters
        self._handing = Handing(self.links, self.results, self.events.put)
        for result in self.results.held:
            self.events.put(result)
        self._thread = threading.Thread(target=self._run, name="securedfl-peer", daemon=True)
        self._thread.start()

    def entries(self, since: int = 0) -> list[Entry]:
        """Return the entries of the log from a round on; what is older is not looked at."""
        found = takewhile(lambda one: getattr(one.entry, "round", since) >= since, reversed(self._core.log))
        return [decided.entry for decided in found][::-1]

    def _fail(self, error: BaseException) -> None:
        """Take note of what ends this peer."""
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()

    def close(self) -> None:
        """Tell the others that this peer stops, and hang up."""
        self.events.put(ev.Leaving())
        self.events.put(None)
        self._thread.join(10)
        self._handing.stop()
        if self._trial is not None:
            self._trial.stop()
            self._trial.join(1)
        self.links.close()
        self._journal.close()

    def _run(self) -> None:
        try:
            while True:
                # the operator is answered within a second, whatever the heartbeat is
                event = self.events.get(min(1.0, max(0.0, self._wake - time.monotonic())))
                if event is None:
                    return
                # letters are not for the core, and however many there are, its time comes
                tick = [ev.Tick()] if time.monotonic() >= self._wake else []
                # a wish goes before all else, so that nobody hears from a peer with a wish that it has none
                for happened in (*self._wished(), *self._heard(event), *tick):
                    self._carry_out(self._core.step(happened, time.monotonic()))
                    self._look()
                if why := self._strangers.trouble(time.monotonic(), begun=bool(self._core.state.length)):
                    raise ConfigError(why)
        except BaseException as error:
            self._fail(error)

    def _heard(self, event: ev.Event | wire.Event | BaseException) -> Iterable[ev.Event]:
        """Return what an event of the links means for the core; other events are for it anyway."""
        match event:
            case BaseException():
                self._fail(event)
            case wire.LinkUp(name, through):
                log.info("%s is linked%s", name, f" through {through}" if through else "")
                self._met.discard(name)
                self.links.send(name, encode(Hello(self._says, time.time())))
                self.links.send(name, encode(Ways.of(self.links.reaches())))
                self._hand_cards([name])
                return [ev.Link(number) for number in self._numbers(name)]
            case wire.LinkDown(name, reason):
                log.warning("the link to %s is lost: %s", name, reason)
                for number in self._numbers(name):
                    if self._trial is not None:
                        self._trial.link_lost(number, f"the link to {name} is lost: {reason}")
                return [ev.Link(number, up=False) for number in self._numbers(name)]
            case wire.Refused(name, reason, unfit):
                if unfit and (numbers := self._numbers(name)):
                    self._told(ev.Tell("unfit", tuple(numbers), reason))
                else:
                    log.warning("%s: %s", f"{name} cannot be reached" if name else "somebody was refused", reason)
            case wire.ControlMessage(name, data):
                message = unpack(data)
                if isinstance(message, Gossip):
                    return [ev.Received(number, message) for number in self._numbers(name)]
                self._read(name, message)
            case _:
                return [event]
        return []

    def _wished(self) -> Iterable[ev.Event]:
        """Return what the operator wants now."""
        statuses, who = self._core.views.statuses, lambda: heard(self.links.reaches(), self.progress)
        command = self._desk.new_command(self._core.state, statuses, who)
        return [] if command is None else [command]

    def _told(self, tell: ev.Tell) -> None:
        """Log and tell; answer the operator if it is about the wish."""
        roster = (*self._roster, *self._core.state.roster)  # also of peers that have just left
        text = in_words(tell, roster)
        log.log(logging.WARNING if is_bad(tell) else logging.INFO, "%s", text)
        self._tell(tell, names := names_of(tell.peers, roster))
        if tell.what == "refused" and tell.detail == UNPROVEN:
            self._strangers.refuse(names[0], time.monotonic())
        if self._desk.answered(tell, text) and tell.what == "unable":
            self.events.put(ev.Command(None))

    def _read(self, name: str, letter: Letter | None) -> None:
        match letter:
            case None:
                self.links.counters["malformed message"] += 1
            case Hello(settings, clock) if name not in self._met:
                self._met.add(name)
                if found := self._strangers.hear(name, settings, time.monotonic()):
                    log.error("%s", found)
                    if self._strangers.has_another_log(name):
                        self._tell(ev.Tell("unfit", tuple(self._numbers(name)), found), [name])
                if abs(clock - time.time()) > CLOCK_SLACK:
                    log.warning("the clock of %s differs by %.0f s; set both by NTP", name, abs(clock - time.time()))
            case Cards(certificates):
                if self._keyring.learn(certificates):
                    self._hand_cards(list(self.links.links))
            case Want():
                self._handing.give(name, letter, self._core.state.settings.average)

    def _carry_out(self, actions: Sequence[ev.Action]) -> None:
        writes = [action.record for action in actions if isinstance(action, ev.Write)]  # they come first
        if writes:
            self._journal.append(writes, self._core.log)
        for action in actions[len(writes) :]:
            self._do(action)

    def _do(self, action: ev.Action) -> None:
        match action:
            case ev.Send(peers, message):
                data = encode(message)
                for name in names_of(peers, self._core.state.roster):
                    self.links.send(name, data)
            case ev.Train():
                self._task = action
            case ev.Share():
                self._share(action)
            case ev.Open(lost):
                if self._trial is not None:
                    self._trial.finish(lost)
            case ev.Stop():
                if self._trial is not None:
                    self._trial.stop()
                self._trial = None
            case ev.Fetch():
                names = {peer.number: peer.name for peer in self._core.state.roster}
                self._handing.fetch(action, names, self._core.state.settings.average)
            case ev.Apply(applied):
                self._applied = applied
            case ev.Wake(at):
                self._wake = at
            case ev.Tell():
                self._told(action)

    def _share(self, share: ev.Share) -> None:
        state, averages = self._core.state, self.settings.averages
        before, now, members = state.model, share.attempt, share.members
        turn = now.round if before.round >= 0 else 0

        def base() -> Array | None:
            return None if before.round < 0 else self.results.load(before.round, before.digest)

        def store(mean: Array) -> Result:
            try:
                check_finite(mean)
                model = averages.model(mean, turn, base)
            except InvalidInputError as error:
                # the same at all members: what one of them brings must not end the others
                if (held := base()) is None:
                    # no model to stay with: the attempt has failed; after several the round is void, where it can be
                    raise PeerLostError(str(error)) if self.settings.rules.can_lose else error from None
                log.warning("round %d gives nothing of use, so that the model stays as it is: %s", now.round, error)
                model = held
            result = self.results.store(now.round, now.attempt, model)
            self.computed.add(result)
            return result

        work = Work(
            place=Position(hashlib.sha256(state.run.encode()).digest()[:16], now.round, now.attempt, 0, 0),
            members=dict(zip(members, names_of(members, state.roster), strict=True)),
            recipe=averages.recipe(members.index(self.settings.number), len(members), turn),
            vector=self.updates[now.round],
            patience=state.settings.average,
            grace=(SILENCE + GRACE + 1) * state.settings.heartbeat,
            ready=lambda: self.progress.ready,
            store=store,
        )
        self._trial = Trial(self.links, work, self.events.put)
        self._trial.start()

    def _look(self) -> None:
        """Take note of where the log and this peer are now, and follow changes of the roster."""
        state, views = self._core.state, self._core.views
        ready, since = views.ready(), self.progress.since
        if state.phase != "idle" and since[0] != state.round and set(state.members) <= set(ready):
            since = (state.round, time.monotonic())
        present = tuple(peer.number for peer in state.roster if views.present(peer.number))
        asking = tuple(number for number in present if views.status(number).asks is not None)
        strange = tuple(sorted(views.strangers))
        now = Progress(state, self._task, self._applied, ready, present, strange, views.finished(), asking, since)
        if now != self.progress:
            applied, before = now.applied, self.progress.applied
            with self.changed:
                self.progress = now
                self.changed.notify_all()
            if applied != before:
                # not sooner: whoever asks for the model looks for the one that this says
                self.results.keep_from(applied.round)
                self.computed = {result for result in self.computed if result.round >= applied.round}
        if state.roster != self._roster:
            self._roster = state.roster
            self._follow()

    def _follow(self) -> None:
        """Take the roster as it is now: addresses, keys, and this peer's own."""
        settings, mine = self.settings, self._core.state.peer(self.settings.number)
        if (end := self._removed()) is not None:
            self._fail(end)
        elif mine is not None and mine.key != self._keyring.own:
            # its files hold the renewed key by now, if it was renewed at this site
            self._keyring.use(settings.files)
            # it may vote again, and those that are linked with that key already can check what it signs
            self.events.put(ev.Tick())
            self._hand_cards(list(self.links.links))
            self.links.update(files=settings.files)
        self.links.update(roster=endpoints_of(self._roster, settings.name))

    def _hand_cards(self, names: Sequence[str]) -> None:
        """Hand others the certificates that are known here."""
        for cards, name in product(Cards.of(self._keyring.certificates), names):
            self.links.send(name, encode(cards))

    def _removed(self) -> RunEndedError | None:
        """Return the end of a peer that the log has removed, now or before it was started again."""
        end = RunEndedError(f"{self.settings.name} was removed from the roster")
        return end if removed(self.settings, self._core.state) else None

    def _numbers(self, name: str) -> list[int]:
        return [peer.number for peer in self._core.state.roster if peer.name == name]
