"""Peers in shards: the same bits as in one process, whichever shard is lost when; and only what changed travels."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.config import TrainConfig
from securedfl.federation.task import make_task
from securedfl.learning.training.cluster import team as teams
from securedfl.learning.training.cluster.placement import Node
from securedfl.learning.training.cluster.shard import Answers, Shard
from securedfl.learning.training.cluster.team import ShardTeam
from securedfl.learning.training.cluster.team import pieces as pieces_for
from securedfl.learning.training.failures import LostError, WorkerLostError
from securedfl.learning.training.team import InProcessTeam

NODES = (Node("a" * 8, "10.0.0.1", 1, 10**10, home=True), Node("b" * 8, "10.0.0.2", 1, 10**10))

CALLS = 36
"""Of shards, in `numbers`."""


@pytest.fixture(autouse=True)
def _one_peer_at_a_time(monkeypatch):
    """Whatever the clock says, because calls are counted here."""
    monkeypatch.setattr(teams, "pieces", lambda _seconds, _nbytes: teams.PIECES)


def task(**settings):
    return make_task(TrainConfig.resolve({"peers": 4, "model": "linear", "optimizer": "adam", **settings}))


class FakeHost:
    """Shards in this process. ``losing`` says of a call, by its number, what dies: the shard before it does the work
    (``"before"``) or when it is done (``"after"``), or the whole node.
    """

    def __init__(self, losing=None):
        self.losing = losing or {}
        self.there, self.asked, self.dead, self.answers = list(NODES), [], set(), {}
        self.sent = []
        self.seats, self.closed, self.calls, self.shared = [], False, Counter(), 0

    def nodes(self):
        return tuple(self.there)

    def start(self, seat, make, *, again):
        self.seats.append(seat)
        return Shard(make), seat

    def stop(self, shard):
        self.dead.add(id(shard))

    def share(self, value):
        self.shared += 1
        return value

    def ask(self, shard, method, *arguments, **options):
        ticket, fate = len(self.asked), None
        self.asked.append(method)
        if method == "carry_out":
            *_, own = arguments
            self.sent.append({peer: row is None for peer, row in own.items()})
            self.calls[arguments[0]] += 1
            fate = self.losing.get(sum(self.calls.values()))
        if fate == "node":
            self.there = [node for node in self.there if node.id != shard[1].node.id]
        if fate in ("before", "node"):
            self.dead.add(id(shard))
        gone = id(shard) in self.dead or shard[1].node not in self.there
        self.answers[ticket] = (
            LostError("killed") if gone else read_only(getattr(shard[0], method)(*arguments, **options))
        )
        if fate == "after":
            self.dead.add(id(shard))
            self.answers[ticket] = LostError("killed")
        return ticket

    def ready(self, tickets, seconds=None):
        # the last first, so that nobody relies on the order
        return [tickets[-1]]

    def collect(self, ticket):
        answer = self.answers.pop(ticket)
        if isinstance(answer, LostError):
            raise answer
        return answer

    def close(self):
        self.closed = True


def read_only(answer):
    """Freeze arrays, as those that came with a message are."""
    for row in answer.rows if isinstance(answer, Answers) else ():
        row.flags.writeable = False
    return answer


def numbers(team):
    """Two rounds by a method that averages, and two without; what a checkpoint keeps; and what follows it."""
    team.initialise()
    losses = [team.update(1)]
    team.parameters[:] = team.parameters.mean(axis=0)
    scores = [team.evaluate_each(), team.evaluate_common([0])]
    losses += [team.update(2), team.update(3, only=[1, 2])]
    scores += [team.evaluate_each()]
    saved = team.parameters.copy(), team.states()
    losses += [team.update(4)]
    team.initialise()
    team.restore(*saved)
    losses += [team.update(4)]
    return losses, scores, team.parameters.copy(), team.states(), team.homes(), team.whole(3)


@pytest.fixture(scope="module")
def job():
    # the biases stay at home
    return task(local=["*bias"])


@pytest.fixture(scope="module")
def expected(job):
    with InProcessTeam(job) as team:
        return numbers(team)


def test_two_shards_compute_the_same_bits_as_one_process(job, expected):
    host, told = FakeHost(), []
    with ShardTeam(job, host, "auto", told.append) as team:
        assert team.workers == 2
        np.testing.assert_equal(numbers(team), expected)
    assert host.closed
    (line,) = told
    assert line.startswith("Ray: 2 shards on 2 nodes, up to 2 peers and about 50")


@pytest.mark.parametrize("fate", ["before", "after", "node"])
@pytest.mark.parametrize("call", range(1, CALLS + 1, 7))
def test_whatever_is_lost_when_the_numbers_stay_the_same_and_the_user_is_told(job, expected, call, fate):
    host, told = FakeHost({call: fate}), []
    with ShardTeam(job, host, 2, told.append) as team:
        np.testing.assert_equal(numbers(team), expected)
    _, line = told
    where = "on node 10.0.0." if fate == "node" else "on the same node"
    why = "its node is gone" if fate == "node" else "killed"
    assert line.startswith(f"A worker was lost ({why}): peers ")
    assert f"start again {where}" in line
    assert len(host.seats) == 3


def test_all_calls_of_that_run_are_covered(job):
    host = FakeHost()
    with ShardTeam(job, host, 2, str) as team:
        numbers(team)
    assert sum(host.calls.values()) == CALLS


@pytest.mark.parametrize(
    ("seconds", "megabytes", "count"),
    [(0.1, 1, 1), (1.9, 31, 1), (3.5, 1, 3), (0.1, 100, 3), (100, 1, 8), (0.1, 10_000, 8), (float("inf"), 1, 8)],
)
def test_short_trainings_are_handed_over_whole_and_long_or_large_ones_in_pieces(seconds, megabytes, count):
    assert pieces_for(seconds, megabytes * 10**6) == count


@pytest.mark.parametrize("count", [1, 2])
def test_the_number_of_pieces_changes_no_number(job, expected, monkeypatch, count):
    monkeypatch.setattr(teams, "pieces", lambda _seconds, _nbytes: count)
    with ShardTeam(job, FakeHost({9: "after"}), 2, str) as team:
        np.testing.assert_equal(numbers(team), expected)


def drawn(team):
    """Two rounds of two members each, with rows for two peers; what all have then."""
    losses, scores = [], []
    for round, members in [(0, [1, 2]), (1, [1, 2]), (2, [0, 3])]:
        team.seat(members)
        if round:
            losses.append(team.update(round, only=members))
        else:
            team.initialise()
        team.parameters[:] = team.parameters.mean(axis=0)
        scores.append(team.evaluate_each())
    return losses, scores, team.parameters.copy(), team.states(), team.whole(1)


@pytest.mark.parametrize("losing", [{}, {3: "before"}, {7: "node"}, {11: "before"}, {13: "after"}], ids=str)
def test_members_that_are_drawn_have_the_rows_and_shards_keep_none(losing):
    job = task(peers_per_round=3, between_rounds="forget")
    with InProcessTeam(job, 2) as team:
        expected = drawn(team)
    host, told = FakeHost(losing), []
    with ShardTeam(job, host, 2, told.append, 2) as team:
        np.testing.assert_equal(drawn(team), expected)
        assert not any(shard.handle[0]._rows for shard in team._shards)
    assert len(told) == 1 + len(losing)


def test_a_node_with_two_shards_takes_both_along(job, expected, monkeypatch):
    wide = tuple(replace(node, cores=2) for node in NODES)
    monkeypatch.setattr(FakeHost, "nodes", lambda host: tuple(n for n in wide if n.id in {x.id for x in host.there}))
    host, told = FakeHost({9: "node"}), []
    monkeypatch.setattr(host, "there", list(wide))
    with ShardTeam(job, host, "auto", told.append) as team:
        np.testing.assert_equal(numbers(team), expected)
        assert len({shard.seat.node.id for shard in team._shards}) == 1
    assert len(told) == 3


def test_a_shard_that_is_lost_again_and_again_ends_the_run():
    host = FakeHost(dict.fromkeys(range(9, 100), "before"))
    with ShardTeam(task(), host, 2, str) as team:
        team.initialise()
        team.update(1)
        with pytest.raises(WorkerLostError, match=r"was lost 4 times in a row \(killed\).*fewer workers"):
            team.update(2)
    assert host.closed


def test_without_a_node_nobody_starts_again():
    host = FakeHost()
    with ShardTeam(task(), host, 2, str) as team:
        host.there = []
        with pytest.raises(WorkerLostError, match="no node that is left has 500 MB for it; add nodes"):
            team.samples()


def test_rows_travel_only_if_they_were_changed_and_once_if_all_are_the_same():
    host = FakeHost()

    def sent():
        """Return whose rows went out since the last time, and how many were shared."""
        rows = [item for own in host.sent for item in own.items()]
        common, single = (sorted(peer for peer, same in rows if same is kind) for kind in (True, False))
        found = common, single, host.shared
        host.sent, host.shared = [], 0
        return found

    with ShardTeam(task(), host, 2, str) as team:
        team.initialise()
        sent()
        team.update(1)
        team.evaluate_each()
        # all begin with the same, which they have
        assert sent() == ([], [], 1)
        team.parameters[:] = team.parameters.mean(axis=0)
        team.evaluate_each()
        assert sent() == ([0, 1, 2, 3], [], 1)
        team.evaluate_common([0])
        team.update(2)
        assert sent() == ([], [], 0)
        team.parameters[2] += 1
        team.update(3)
        assert sent() == ([], [2], 0)


def test_an_error_in_a_shard_is_the_error_of_the_team():
    host = FakeHost()
    with ShardTeam(task(), host, 2, str) as team:
        team.initialise()
        team.parameters[1] = np.nan
        with pytest.raises(InvalidInputError, match="training of peer 1 diverged in round 1"):
            team.update(1)


def test_nodes_with_other_versions_are_refused(monkeypatch):
    host = FakeHost()
    monkeypatch.setattr(teams, "versions", lambda: ("torch 1",))
    with pytest.raises(ConfigError, match=r"a node of the cluster has .*, but this process has torch 1; install"):
        ShardTeam(task(), host, 2, str)
    assert host.closed


def test_a_shard_that_does_not_start_is_an_error_that_says_what_to_do(monkeypatch):
    host = FakeHost()
    monkeypatch.setattr(host, "ready", lambda tickets, seconds=None: [])
    with pytest.raises(WorkerLostError, match="has not started within 300 s"):
        ShardTeam(task(), host, 2, str)
    assert host.closed


def test_a_part_that_cannot_be_made_is_told_at_the_start(monkeypatch):
    def broken():
        raise ConfigError("no such thing")

    host = FakeHost()
    monkeypatch.setattr(host, "start", lambda seat, make, again: (Shard(broken), seat))
    with pytest.raises(ConfigError, match="no such thing"):
        ShardTeam(task(), host, 2, str)
