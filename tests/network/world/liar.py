"""A peer that lies: it runs an honest core, and then says other things than that, each to whom it likes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from securedfl.network.core.core import Core
from securedfl.network.core.entries import Abandon, Begin, Commit, Done, End, Entry, Remove, Try, Void, Voting
from securedfl.network.core.messages import (
    NO_RESULT,
    PRECOMMIT,
    PREVOTE,
    Decided,
    Failure,
    Gossip,
    Proposal,
    Result,
    Status,
    Vote,
    signed_part,
)
from tests.network.world.data import Part
from tests.network.world.schedule import HEALED

if TYPE_CHECKING:
    from tests.network.world.site import Site

LIES = ("silent", "votes", "both votes", "status", "decided", "proposal", "polka", "other's vote", "old", "wish")


class Liar:
    """Changes what its site sends.

    Parameters
    ----------
    site
        Whose core is honest.
    """

    def __init__(self, site: Site) -> None:
        self._site, self._rng = site, site.rng
        self._kept: list[Gossip] = []
        # what it does to the data of averages
        self.spoils = ""
        # some lie on when the faults are over, as far as that leaves the others a quorum
        self._goes_on = self._rng.random() < 0.5

    def heal(self) -> None:
        """Leave the data alone, and come as its admitted self, or with an empty folder."""
        site, self.spoils = self._site, ""
        admitted = site.world.state_before(len(site.world.checks.log)).peer(site.number)
        if admitted and admitted.incarnation not in ("", site.disk.incarnation):
            # it had another folder admitted in the place of its own, which never counts again
            site.stop("stops, and comes with an empty folder")
            site.disk = site.new_disk()
            site.start()
        if site.world.now < HEALED + 20:
            # what it said before may still have another one admitted
            site.world.at(site.world.now + 5, self.heal)

    def spoiled(self, part: Part, sent: Mapping[int, Any], now: tuple[int, int]) -> Mapping[int, Any]:
        """Return what it sends to each in an attempt: the data that it should, nothing, or other sums to each."""
        world = self._site.world
        if self.spoils == "withheld":
            return {}
        if self.spoils == "other sums" and (part.tag is not None or not world.rules.can_lose):
            world.checks.spoiled.add(now)
            return {peer: _other(payload, peer) for peer, payload in sent.items()}
        return sent

    def send(self, peers: tuple[int, ...], message: Gossip) -> None:
        """Send something to each."""
        world = self._site.world
        over = world.now >= HEALED and not self._goes_on
        self._kept = [*self._kept[-20:], message]
        for peer in peers:
            lie = "honest" if over or self._rng.random() < 0.5 else self._rng.choice(LIES)
            if lie != "honest":
                world.counts[f"lie: {lie}"] += 1
            changed = self._flattering(peer, message) or self._changed(lie, message)
            if changed is not None:
                world.send(self._site.number, peer, changed)

    def _flattering(self, peer: int, message: Gossip) -> Gossip | None:
        """In some attempts that it spoiled: tell each that it has the same result, for ever, and vote for nothing."""
        site, core, sites = self._site, self._site.core, self._site.world.sites
        now = (core.state.round, core.state.attempt) if core else (-1, -1)
        if core is None or now not in site.world.checks.spoiled or sum(now) % 2 or not self._spare(core):
            return None
        site.world.counts["lie: the same result"] += 1
        other = sites[peer].core
        held = other.views.status(peer).holds if other else NO_RESULT
        own = [
            replace(s, holds=held) for s in message.statuses if s.peer == site.number and s.holds.which == held.which
        ]
        signed = {s.peer: replace(s, signature=self._signed_as(s)) for s in own}
        statuses = tuple(signed.get(s.peer, s) for s in message.statuses)
        return replace(message, statuses=statuses, votes=tuple(v for v in message.votes if v.peer != site.number))

    def _spare(self, core: Core) -> bool:
        """Say whether the others have a quorum without its votes; the log promises nothing without one."""
        sites = self._site.world.sites
        voters = [line for line in core.state.roster if line.incarnation]
        honest = [line for line in voters if not sites[line.number].lies and not sites[line.number].gone]
        whole = [line for line in honest if line.incarnation == sites[line.number].disk.incarnation]
        return len(whole) >= self._site.world.schedule.quorum(len(voters))

    def _changed(self, lie: str, message: Gossip) -> Gossip | None:
        match lie:
            case "silent":
                return None
            case "votes":
                return replace(message, votes=tuple(self._other_vote(vote) for vote in message.votes))
            case "both votes":
                return replace(message, votes=(*message.votes, *self._votes_for_anything()))
            case "status":
                return replace(message, statuses=tuple(self._other_status(status) for status in message.statuses))
            case "decided":
                return replace(message, decided=self._forged() if self._rng.random() < 0.5 else self._bare())
            case "proposal" | "polka":
                return replace(message, proposals=(self._proposal(polka=lie == "polka"),))
            case "other's vote":
                return replace(message, votes=tuple(replace(vote, value=b"") for vote in message.votes))
            case "old":
                return self._rng.choice(self._kept)
            case "wish":
                return replace(message, statuses=tuple(self._wish(status) for status in message.statuses))
            case _:
                return message

    def _signed(self, item: Vote | Proposal) -> bytes:
        core = self._site.core
        assert core is not None
        line = core.state.peer(item.peer)
        incarnation = line.incarnation if line else self._site.disk.incarnation
        return self._site.world.sign(self._key(item.peer), signed_part(core.state.run, incarnation, item))

    def _sign_vote(self, vote: Vote) -> Vote:
        """Return a vote of this liar, or of another one: they have each other's keys."""
        return replace(vote, signature=self._signed(vote))

    def _key(self, number: int) -> bytes:
        core, world = self._site.core, self._site.world
        line = core.state.peer(number) if core else None
        return line.key if line else world.peer(number).key

    def _other_vote(self, vote: Vote) -> Vote:
        if vote.peer != self._site.number:
            return vote
        return self._sign_vote(replace(vote, value=b"" if vote.value else self._value()))

    def _value(self) -> bytes:
        core = self._site.core
        assert core is not None
        proposals = [*core.consensus.proposals.values()]
        return core.proofs.value(self._rng.choice(proposals).entry if proposals else self._entry())

    def _votes_for_anything(self) -> tuple[Vote, ...]:
        """Votes of all liars of both kinds, for what is proposed and for nothing, in this ballot and far ahead."""
        core = self._site.core
        assert core is not None
        ballot = core.consensus.ballot + self._rng.choice((0, 0, 1, self._rng.randrange(2, 100)))
        value = self._rng.choice((b"", self._value()))
        return self._all_vote(core.state.length, ballot, (PREVOTE, PRECOMMIT), value)

    def _all_vote(self, index: int, ballot: int, kinds: Iterable[int], value: bytes) -> tuple[Vote, ...]:
        """Votes of all liars for one value."""
        places = product(self._site.world.schedule.liars, kinds)
        return tuple(self._sign_vote(Vote(liar, index, ballot, kind, value)) for liar, kind in places)

    def _entry(self) -> Entry:
        core = self._site.core
        assert core is not None
        state, rng = core.state, self._rng
        now = (state.round, state.attempt)
        numbers = tuple(peer.number for peer in state.roster)
        some = tuple(sorted(rng.sample(numbers, rng.randrange(1, len(numbers) + 1))))
        forged = bytes(rng.randrange(256) for _ in range(16))
        return rng.choice(
            [
                Begin(*now, some),
                Begin(*now, numbers),
                Commit(*now),
                Done(*now, forged),
                Abandon(*now),
                Void(state.round),
                End("because I say so"),
                Remove(rng.choice(numbers)),
            ]
        )

    def _forged(self) -> tuple[Decided, ...]:
        """An entry with too few votes: the liars', and signatures that are nobody's; or with none, before one."""
        core = self._site.core
        assert core is not None
        entry = self._entry()
        value, index = core.proofs.value(entry), core.state.length
        voters = core.consensus.voters
        own = self._all_vote(index, 0, (PRECOMMIT,), value)
        liars = self._site.world.schedule.liars
        honest = tuple(Vote(peer, index, 0, PRECOMMIT, value, own[0].signature) for peer in voters if peer not in liars)
        votes = self._rng.choice([own, own * len(voters), (*own, *honest), ()])
        if votes:
            return (Decided(index, entry, votes),)
        after = self._all_vote(index + 1, 0, (PRECOMMIT,), value)
        return Decided(index, entry, ()), Decided(index + 1, self._entry(), after * len(voters))

    def _bare(self) -> tuple[Decided, ...]:
        """True entries with as few votes as prove them, so that whoever takes them can prove less to others."""
        core = self._site.core
        assert core is not None
        found = core.log[self._rng.randrange(core.state.length + 1) :][: self._rng.randrange(1, 12)]
        kept = [one if isinstance(one.entry, Voting) else replace(one, votes=()) for one in found[:-1]]
        return (*kept, *found[-1:])

    def _proposal(self, *, polka: bool) -> Proposal:
        core = self._site.core
        assert core is not None
        ballot = core.consensus.ballot + self._rng.choice((0, 0, 1, 2, self._turn()))
        made = Proposal(self._site.number, core.state.length, ballot, self._entry())
        if polka:
            valid = max(0, ballot - 1)
            votes = self._all_vote(core.state.length, valid, (PREVOTE,), core.proofs.value(made.entry))
            made = replace(made, valid=valid, polka=votes * core.consensus.quorum)
        return replace(made, signature=self._signed(made))

    def _turn(self) -> int:
        """In how many ballots it will be its turn to propose, some time."""
        core = self._site.core
        assert core is not None
        voters, now = core.consensus.voters, core.state.length + core.consensus.ballot
        place = voters.index(self._site.number) if self._site.number in voters else 0
        return (place - now) % len(voters) + len(voters) * self._rng.randrange(30)

    def _other_status(self, status: Status) -> Status:
        """Lies about what it did; the sequence is that of the true status, so that only one of the two counts."""
        if status.peer != self._site.number:
            return status
        core, rng = self._site.core, self._rng
        assert core is not None
        now = (core.state.round, core.state.attempt)
        forged = bytes(rng.randrange(256) for _ in range(16))
        numbers = tuple(peer.number for peer in core.state.roster)
        lies = [
            replace(status, shared=Try(*now)),
            replace(status, holds=Result(*now, forged)),
            replace(status, ready=core.state.round),
            replace(status, reaches=numbers),
            replace(status, length=status.length + 5),
        ]
        if self._site.world.now < HEALED:
            # with these it can keep the data plane from ever getting done, which nothing here promises to prevent
            lies += [
                replace(status, failed=Failure(*now, (), tuple(p for p in numbers if p != status.peer)[:2])),
                replace(status, reaches=()),
                replace(status, forgot=core.state.round),
                replace(status, leaving=True),
                replace(status, incarnation="forged folder"),
            ]
        made = rng.choice(lies)
        return replace(made, signature=self._signed_as(made))

    def _signed_as(self, status: Status) -> bytes:
        core = self._site.core
        assert core is not None
        return self._site.world.sign(self._key(status.peer), signed_part(core.state.run, status.incarnation, status))

    def _wish(self, status: Status) -> Status:
        if status.peer != self._site.number:
            return status
        made = replace(status, asks=self._rng.choice([End("because I say so"), Remove(0), Remove(1)]), signature=b"")
        return replace(made, signature=self._signed_as(made))


def _other(payload: Any, peer: int) -> Any:
    """Return another message for each peer: a little more, or many units of a ring or field; masks stay as they are."""
    if not isinstance(payload, np.ndarray):
        return payload
    return payload + (payload.dtype.type(1 + peer) if payload.dtype.kind == "u" else 0.1 * (1 + peer))
