"""What must never happen, and is looked at after every event; the world knows more than any peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from securedfl.network.core.core import Core
from securedfl.network.core.entries import Begin, Commit, Done, Entry
from securedfl.network.core.messages import Decided, Gossip, Vote, signed_part
from securedfl.protocols.steps import Array
from tests.network.world.data import WINDOW

if TYPE_CHECKING:
    from tests.network.world.world import Site, World

Identity = tuple[int, str, int, int]
"""Of parameters: the peer, its state folder, the round, and how often it trained."""


class ViolationError(AssertionError):
    """Something happened that must never happen.

    Parameters
    ----------
    kind, what
        Which promise was broken, and how.
    """

    def __init__(self, kind: str, what: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {what}")


class Checks:
    """What the world remembers in order to check it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log: list[Entry] = []
        self.members: dict[tuple[int, int], tuple[int, ...]] = {}
        self.voted: dict[tuple[int, str, int, int, int], bytes] = {}
        self.used: dict[tuple[int, int], dict[int, tuple[Identity, Array]]] = {}
        self.shared: dict[tuple[int, int], set[int]] = {}
        self.opened: dict[Identity, tuple[int, ...]] = {}
        self.models: dict[int, bytes] = {}
        self.totals: list[tuple[int, tuple[int, ...]]] = []
        # attempts in which a liar sent other sums
        self.spoiled: set[tuple[int, int]] = set()
        self.averages = 0

    def fail(self, kind: str, what: str) -> NoReturn:
        raise ViolationError(kind, f"{what} (at {self.world.now:.2f} s)")

    def grown(self, site: Site, core: Core, since: int, until: int) -> None:
        """One log: every honest peer has the same entries on its disk, each with enough votes.

        What a peer decided in memory and lost before it was written, it told nobody: that is no decision.
        """
        known = len(self.log)
        for decided in core.log[since:until]:
            index = decided.index
            if index < known:
                if self.log[index] != decided.entry:
                    self.fail("fork", f"at {index}: peer {site.number} decided {decided.entry}, not {self.log[index]}")
                continue
            self.log.append(decided.entry)
            self.world.tell(f"entry {index}: {decided.entry}")
            match decided.entry:
                case Begin(round, attempt, members):
                    self.members[round, attempt] = members
                case Commit(round, attempt):
                    self._totals(round, self.members[round, attempt])
                    self.world.committed()
                case Done(round, _, digest):
                    if self.models.setdefault(round, digest) != digest:
                        self.fail("two outcomes", f"round {round} has two outcomes")
        for index in range(known, len(self.log)):
            # votes that are gone already are proven by those that follow
            self._proven(next((one for one in core.log[index:] if one.votes), core.log[index]))

    def _totals(self, round: int, members: tuple[int, ...]) -> None:
        """Where peers are left out in blocks: from totals of the window no peer can compute another one's update."""
        schedule = self.world.schedule
        self.totals.append((round, members))
        if schedule.absence != "blocks" or any(fault.kind in ("add", "remove") for fault in schedule.faults):
            return
        known = np.array([[k in row for k in range(schedule.peers)] for at, row in self.totals if at >= round - WINDOW])
        everybody = np.eye(schedule.peers)
        for me in range(schedule.peers):
            mine = np.vstack([known, everybody[me]])
            rank = np.linalg.matrix_rank(mine)
            told = [k for k in range(schedule.peers) if np.linalg.matrix_rank(np.vstack([mine, everybody[k]])) == rank]
            if told != [me]:
                self.fail("told apart", f"peer {me} can compute the updates of {told} from totals up to round {round}")

    def _proven(self, decided: Decided) -> None:
        """Enough different peers voted; counted here with numbers of its own."""
        before = self.world.state_before(decided.index)
        admitted = {peer.number for peer in before.roster if peer.incarnation}
        schedule = self.world.schedule
        enough = schedule.quorum(len(admitted)) if decided.index else len(before.roster) - schedule.lying
        voters = {vote.peer for vote in decided.votes}
        if decided.index and not voters <= admitted:
            self.fail(
                "strange voters",
                f"entry {decided.index} was decided by peers that are not admitted: {voters - admitted}",
            )
        if len(voters) < enough:
            self.fail("too few votes", f"entry {decided.index} was decided by {len(voters)} of {len(admitted)} votes")

    def sent(self, site: Site, message: Gossip) -> None:
        """No vote against an earlier one, none before it is on disk, and none that others cannot believe."""
        for vote in message.votes:
            if vote.peer == site.number:
                place = (site.number, site.disk.incarnation, vote.index, vote.ballot, vote.kind)
                peer = self.world.state_before(vote.index).peer(site.number)
                if vote.index and (peer is None or peer.incarnation != site.disk.incarnation):
                    self.fail("strange voters", f"peer {site.number} votes from a folder that is not admitted")
                if place not in self.voted:
                    # a peer that is in a later ballot never votes in this one again
                    if vote not in site.disk.votes and (vote.index, vote.ballot) >= site.disk.at:
                        self.fail(
                            "vote not on disk", f"peer {site.number} sent a vote that is not on its disk: {_vote(vote)}"
                        )
                    self.voted[place] = vote.value
                    data = signed_part(message.run, site.disk.incarnation if vote.index else "", vote)
                    if peer is not None and self.world.sign(peer.key, data) != vote.signature:
                        self.fail("not signed", f"peer {site.number} sent a vote without its signature: {_vote(vote)}")
                elif self.voted[place] != vote.value:
                    self.fail("two votes", f"peer {site.number} voted against an earlier vote: {_vote(vote)}")

    def shares(self, site: Site, now: tuple[int, int], identity: Identity, vector: Array) -> None:
        """A member uses its parameters in an attempt, once."""
        used = self.used.setdefault(now, {})
        if site.number in used and not site.lies:
            self.fail("begun twice", f"peer {site.number} began attempt {now} twice")
        used[site.number] = (identity, vector)

    def opens(self, site: Site, now: tuple[int, int], members: Sequence[int], *, whole: bool) -> None:
        """Nothing is opened before all have shared; no parameters are in totals over different members."""
        honest = {peer for peer in members if not self.world.sites[peer].lies}
        missing = honest - self.shared.get(now, set())
        if not whole and missing:
            self.fail(
                "opened too early", f"peer {site.number} opens attempt {now}, but {sorted(missing)} have not shared"
            )
        for peer, (identity, _) in self.used.get(now, {}).items():
            before = self.opened.setdefault(identity, tuple(members))
            if peer in honest and before != tuple(members):
                self.fail(
                    "two totals", f"parameters of peer {peer} in two totals: over {before} and over {tuple(members)}"
                )

    def applies(self, site: Site, round: int, attempt: int, digest: bytes, result: Array | None) -> None:
        """Whatever is applied is the exact mean over the members of the attempt that was agreed on."""
        if self.models.get(round) != digest:
            self.fail("not agreed", f"peer {site.number} applies a model of round {round} that was not agreed on")
        if result is None:
            self.fail("no result", f"peer {site.number} applies a result that it does not have")
        members = self.members[round, attempt]
        mean = np.mean([self.used[round, attempt][peer][1] for peer in members], axis=0)
        if (round, attempt) not in self.spoiled and not np.allclose(result, mean, rtol=0, atol=1e-5):
            self.fail("wrong mean", f"peer {site.number}: the result of round {round} is not the mean over {members}")
        self.averages += 1


def _vote(vote: Vote) -> str:
    kind = ("prevote", "precommit")[vote.kind]
    return f"{kind} at index {vote.index}, ballot {vote.ballot}: {vote.value.hex()[:8] or 'nil'}"
