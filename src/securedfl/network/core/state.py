"""What the log says: a state that is a pure function of the entries, and which entries it allows next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from securedfl.errors import ConfigError
from securedfl.network.core import entries as en
from securedfl.network.core.entries import MOST_PEERS, Bytes, Entry, Line, Number, Numbers, Settings, Text, Try
from securedfl.network.core.messages import NO_RESULT, Result, digest


class Rules(Struct, frozen=True, kw_only=True):
    """What the federation's files fix for good about attempts; the same on all peers.

    Attributes
    ----------
    can_lose
        Whether the protocol is in two parts, so that members lost before the commit can be left out. If not, sums
        leave from the beginning: all peers take part, and `Begin` binds like `Commit`.
    lying, least
        How many peers may lie, and the fewest members.
    window, pick, allows
        For how many rounds the state keeps whose sums may have been seen; who of those that could be members are
        them; and whether these may be: hooks for policies about absence.
    weigh
        What is kept of an older round with such sums, from its number and the members of each: a number, and the
        state counts how often it came. 0 counts for nothing.
    recoverable
        Whether the members of the running attempt can finish without these after the commit.
    accepts
        Why a roster would promise less than the certificate, or an empty string.
    """

    lying: int = 0
    can_lose: bool = True
    least: int = 3
    window: int = 0
    pick: Callable[[State, tuple[int, ...]], tuple[int, ...]] = lambda _state, peers: peers
    allows: Callable[[State, tuple[int, ...]], bool] = lambda _state, _members: True
    weigh: Callable[[int, Sequence[tuple[int, ...]]], int] = lambda _round, _members: 0
    recoverable: Callable[[State, tuple[int, ...]], bool] = lambda _state, _lost: False
    accepts: Callable[[Sequence[Line]], str] = lambda _roster: ""


class State(Struct, frozen=True, array_like=True):
    """What all peers that have read the log so far know.

    Attributes
    ----------
    run, length, past
        Which run, how many entries, and a digest that chains them.
    roster, settings
        Who belongs to the federation, and what operators may change.
    round, attempt
        The round that comes next or runs, and its next or running attempt.
    phase
        ``idle``; ``begun``: the members share; ``committed``: they may open.
    members, lost
        Of the running attempt.
    bound
        The only members that may still average this round, once sums of it may have been seen; else nobody.
    model
        The last result, if any.
    ended
        The reason that an operator gave.
    opened
        Round and members of the attempts within `Rules.window` whose sums may have been seen.
    retired
        Lines as they were when their peer left for good or got another key: no name, number or key of them comes again.
    weights
        Of older rounds, how many had each weight (`Rules.weigh`), in order.
    """

    run: Text
    roster: Annotated[tuple[Line, ...], Meta(max_length=MOST_PEERS)]
    settings: Settings
    length: Number = 0
    past: Bytes = b""
    round: Number = 0
    attempt: Number = 0
    phase: Literal["idle", "begun", "committed"] = "idle"
    members: Numbers = ()
    lost: Numbers = ()
    bound: Numbers = ()
    model: Result = NO_RESULT
    ended: Text = ""
    opened: tuple[tuple[Number, Numbers], ...] = ()
    retired: tuple[Line, ...] = ()
    weights: tuple[tuple[Number, Number], ...] = ()

    @property
    def now(self) -> Try:
        """The running attempt, or the next one."""
        return Try(self.round, self.attempt)

    @property
    def next_number(self) -> int:
        """The number of the next peer that joins: one that no peer ever had."""
        return 1 + max(peer.number for peer in self.ever)

    @property
    def ever(self) -> tuple[Line, ...]:
        """All lines that the roster has and had."""
        return self.roster + self.retired

    @property
    def over(self) -> bool:
        """Whether no further attempt begins, unless rounds are added."""
        return bool(self.ended) or self.round >= self.settings.rounds

    def peer(self, number: int) -> Line | None:
        """Return a line of the roster."""
        for peer in self.roster:
            if peer.number == number:
                return peer
        return None


def voters(state: State) -> tuple[int, ...]:
    """Return who votes on the next entry: the admitted; on the first one, everybody."""
    return tuple(peer.number for peer in state.roster if peer.incarnation or not state.length)


def quorum(n: int, lying: int) -> int:
    """Return how many of n votes decide: a majority, and the honest alone are one."""
    if n - lying < (most := majority(n, lying)):
        raise ConfigError(f"{n} peers cannot withstand {lying} that lie; lower lying, or have {3 * lying + 1} peers")
    return most


def majority(n: int, lying: int) -> int:
    """Return so many of n votes that any two sets of them share a peer that does not lie."""
    return (n + lying) // 2 + 1


def needed(state: State, rules: Rules) -> int:
    """Return how many votes decide the next entry: a quorum; for the first entry, all but those that may lie."""
    n = len(voters(state))
    return quorum(n, rules.lying) if state.length else n - rules.lying


def reduce(state: State, entry: Entry, rules: Rules) -> State:
    """Return the state after an entry that is allowed."""
    state = replace(state, length=state.length + 1, past=digest(state.past, entry))
    match entry:
        case en.Start(incarnations):
            pairs = zip(state.roster, incarnations, strict=True)
            return replace(state, roster=tuple(replace(peer, incarnation=name) for peer, name in pairs))
        case en.Begin(_, _, members):
            state = replace(state, phase="begun", members=members)
            return state if rules.can_lose else _opened(state, rules)
        case en.Commit():
            return _opened(state, rules)
        case en.Without(_, _, lost):
            return replace(state, lost=lost)
        case en.Done(round, attempt, result):
            return _next_round(replace(state, model=Result(round, attempt, result)), rules)
        case en.Abandon(_, attempt):
            bound = state.members if state.phase == "committed" else state.bound
            return replace(state, phase="idle", attempt=attempt + 1, members=(), lost=(), bound=bound)
        case en.Void():
            return _next_round(state, rules)
        case en.Settings():
            return replace(state, settings=entry)
        case en.End(reason):
            return replace(state, ended=reason)
        case en.Add(peer):
            return replace(state, roster=(*state.roster, replace(peer, incarnation="")))
        case en.Remove(number):
            roster = tuple(peer for peer in state.roster if peer.number != number)
            return _gone(replace(_retire(state, number), roster=roster), number, rules)
        case en.Admit(number, incarnation):
            return _gone(_changed(state, number, incarnation=incarnation), number, rules)
        case en.Move(number, address):
            return _changed(state, number, address=address)
        case en.Renew(number, key):
            return _changed(_retire(state, number), number, key=key)


def _opened(state: State, rules: Rules) -> State:
    now = (state.round, state.members)
    kept = state.opened if now in state.opened or not rules.window else (*state.opened, now)
    return replace(state, phase="committed", opened=kept)


def _next_round(state: State, rules: Rules) -> State:
    round = state.round + 1
    kept = tuple(seen for seen in state.opened if seen[0] >= round - rules.window)
    older: dict[int, list[tuple[int, ...]]] = {}
    for seen, members in state.opened[: len(state.opened) - len(kept)]:
        older.setdefault(seen, []).append(members)
    weights = Counter(dict(state.weights))
    weights.update(rules.weigh(seen, members) for seen, members in older.items())
    counted = tuple(sorted((weight, times) for weight, times in weights.items() if weight))
    state = replace(state, opened=kept, weights=counted)
    return replace(state, round=round, attempt=0, phase="idle", members=(), lost=(), bound=())


def _gone(state: State, number: int, rules: Rules) -> State:
    """Return the state without a peer's update: a round that is bound to it can only be void."""
    return _next_round(state, rules) if number in state.bound else state


def _retire(state: State, number: int) -> State:
    """Return the state with a peer's line among those that count no more."""
    lines = (peer for peer in state.roster if peer.number == number)
    return replace(state, retired=(*state.retired, *lines))


def _changed(state: State, number: int, **changes: str | bytes) -> State:
    changed = (replace(peer, **changes) if peer.number == number else peer for peer in state.roster)
    return replace(state, roster=tuple(changed))


def refusal(state: State, entry: Entry, rules: Rules) -> str:
    """Return why the log forbids an entry, the same on all honest peers; empty if it is allowed."""
    if (state.length == 0) != isinstance(entry, en.Start):
        return "the log starts with the incarnations of all, and only then"
    if state.ended:
        return "an operator ended the run"
    match entry:
        case en.Start(incarnations):
            return "" if len(incarnations) == len(state.roster) and all(incarnations) else "not everybody is in it"
        case en.Begin():
            return _refused_begin(state, entry, rules)
        case en.Commit():
            return _running(state, entry, "begun")
        case en.Without(_, _, lost):
            grown = set(state.lost) < set(lost) < set(state.members) and list(lost) == sorted(set(lost))
            # a result of those that are left is believed if more have it than may lie
            enough = len(state.members) - len(lost) > rules.lying
            possible = rules.can_lose and grown and enough and rules.recoverable(state, lost)
            return _running(state, entry, "committed") or ("" if possible else "the total would be lost")
        case en.Done(_, _, result):
            return _running(state, entry, "committed") or ("" if result else "a result has a digest")
        case en.Abandon():
            return _running(state, entry, "begun", "committed")
        case en.Void(round):
            fits = round == state.round and state.phase == "idle" and not state.over
            return "" if fits else "the round does not wait for an attempt"
        case en.Settings():
            if entry.rounds < state.round:
                return f"{state.round} rounds are done already"
            if entry.rounds == state.round < state.settings.rounds and (state.attempt or state.phase != "idle"):
                # it could be taken up again later, when nobody has its updates any more
                return f"round {state.round} has begun, so that it is the last one at the earliest"
            return "it is so already" if entry == state.settings else ""
        case en.End(reason):
            return "" if reason else "an end has a reason"
        case en.Add(peer):
            if not re.fullmatch(en.NAME, peer.name):
                return "a peer's name has up to 63 lower case letters, digits and hyphens"
            new = state.next_number <= peer.number < state.next_number + MOST_PEERS
            if not new or any(peer.name == other.name for other in state.ever):
                return "the name or number is taken, or was that of a peer that left"
            return "the roster is full" if len(state.roster) == MOST_PEERS else _refused_roster(state, entry, rules)
        case en.Remove() | en.Move() | en.Renew() | en.Admit():
            return _refused_roster(state, entry, rules)


def _running(state: State, entry: Try, *phases: str) -> str:
    return "" if entry.which == state.now and state.phase in phases else "no such attempt is in that phase"


def _refused_begin(state: State, begin: en.Begin, rules: Rules) -> str:
    members = begin.members
    if begin.which != state.now or state.phase != "idle" or state.over:
        return "it is not the next attempt"
    if list(members) != sorted(set(members)) or not set(members) <= set(voters(state)):
        return "members are peers of the roster, each once, in order"
    if state.bound:
        return "" if members == state.bound else "sums of the round may have been seen: only the same may average it"
    if not rules.can_lose and len(members) < len(state.roster):
        return "the protocol needs all peers"
    if len(members) < rules.least or 2 * len(members) <= len(state.roster) or not rules.allows(state, members):
        return "these are too few, or the rules exclude them"
    return ""


def _refused_roster(state: State, entry: en.Add | en.Remove | en.Move | en.Renew | en.Admit, rules: Rules) -> str:
    if state.phase != "idle":
        return "an attempt is running; the roster changes between attempts"
    if not isinstance(entry, en.Add):
        peer = state.peer(entry.number)
        if peer is None:
            return "no such peer"
        if isinstance(entry, en.Admit) and entry.incarnation in ("", peer.incarnation):
            return "it is admitted already"
    after = reduce(state, entry, rules)
    if after.roster == state.roster:
        return "it is so already"
    key = entry.peer.key if isinstance(entry, en.Add) else entry.key if isinstance(entry, en.Renew) else None
    if any(line.key == key for line in state.ever):
        return "the key is or was in use here; make a new one with `securedfl certs request`"
    changed = set(after.roster).difference(state.roster)
    if any(one.address == line.address != "" for one in changed for line in state.roster if line.number != one.number):
        return "another peer has that address; give the one under which others reach this peer"
    if isinstance(entry, en.Remove):
        try:
            quorum(len(voters(after)), rules.lying)
        except ConfigError:
            return f"{len(voters(after))} peers cannot withstand {rules.lying} that lie; add another site first"
        if len(after.roster) < rules.least:
            return f"fewer than {rules.least} peers would be left"
    return "" if isinstance(entry, en.Admit) else rules.accepts(after.roster)
