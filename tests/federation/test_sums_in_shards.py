"""Members in shards: rounds without messages bring home sums in place of rows, and no number changes."""

import pickle
import re

import numpy as np
import pytest

from securedfl.errors import SecuredFLError
from securedfl.federation.algorithm3 import algorithm3
from securedfl.federation.budget.planning import make_plan
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import averaging_of, choose_design
from securedfl.federation.simulated.aggregation import SecureAggregation
from securedfl.federation.simulated.peers import SimulatedPeers, drawn_in, rows_needed
from securedfl.federation.task import make_task
from securedfl.learning.training.cluster import team as teams
from securedfl.learning.training.cluster.team import ShardTeam
from securedfl.learning.training.team import InProcessTeam
from tests.learning.test_shards import FakeHost

MANY = {
    "peers": 60,
    "peers_per_round": 12,
    "held_back": 0.2,
    "model": "linear",
    "optimizer": "adam",
    "learning_rate": 0.01,
    "methods": "secured",
    "messages_every": 3,
    "rounds": 5,
}


@pytest.fixture(autouse=True)
def _three_pieces(monkeypatch):
    """Whatever the clock says, because calls are counted here: 18 sums in three rounds of two shards."""
    monkeypatch.setattr(teams, "pieces", lambda _seconds, _nbytes: 3)


class WatchingHost(FakeHost):
    """Notes which peers' rows come home; questions must be able to travel.

    ``losing`` says what dies at which call of a command: ``("update and add", 3, "before")``.
    """

    def __init__(self, *losing):
        super().__init__()
        self.fates, self.rows_home = {(command, call): fate for command, call, fate in losing}, []

    def ask(self, shard, method, *arguments, **options):
        if method == "carry_out":
            assert pickle.dumps(arguments)
            command = arguments[0]
            fate = self.fates.get((command, self.calls[command] + 1))
            self.losing = {sum(self.calls.values()) + 1: fate}
        return super().ask(shard, method, *arguments, **options)

    def collect(self, ticket):
        answer = super().collect(ticket)
        self.rows_home.append(len(getattr(answer, "rows", ())))
        return answer


def outcome(team, config, **options):
    design, schema, plan = choose_design(config), team.schema, None
    if config.privacy is not None:
        averaging = averaging_of(config, "secured", design)
        plan = make_plan(config, averaging, size=schema.size, dtype=schema.dtype, records=None)
    aggregation = SecureAggregation(
        config, "secured", design, schema, samples=team.samples(), buffers=team.buffers, plan=plan
    )
    peers = SimulatedPeers(team, aggregation, members=drawn_in(config), **options)
    rounds = [(r.losses, r.average.error_mse, r.average.messages) for r in algorithm3(peers, rounds=config.rounds)]
    return rounds, team.parameters.copy(), aggregation.common, team.states(), team.homes()


def config_of(**changes):
    return TrainConfig.resolve({**MANY, **changes})


SETTINGS = [
    {},
    {"protocol": "shares"},
    {"protocol": "resilient", "bits": 16, "range": 1.0},
    {"weighted": True, "beyond": "clip", "range": 0.05},
    {"common_optimizer": "adam"},
    {"differences": False},
    {"protocol": "shares", "privacy": {"unit": "site", "clip": 1.0, "delta": 1e-3, "noise_multiplier": 3.0}},
]


LOSSES = [
    [("update and add", 1, "before")],
    [("update and add", 9, "after")],
    [("update and add", 17, "node")],
    [("evaluate each", 7, "before"), ("update", 6, "after")],
]
AT_HOME = {"local": ["*bias"]}
EVERYBODY = {"peers": 12, "peers_per_round": None, "between_rounds": "forget", **AT_HOME}
CASES = [
    *((changes, LOSSES[at % 4]) for at, changes in enumerate(SETTINGS)),
    *((changes, losing) for changes in (AT_HOME, EVERYBODY) for losing in [[], *LOSSES]),
]


@pytest.mark.parametrize(("changes", "losing"), CASES, ids=str)
def test_sums_give_the_numbers_that_rows_give(changes, losing):
    config = config_of(**changes)
    task, rows = make_task(config), rows_needed(config)
    with InProcessTeam(task, rows) as team:
        expected = outcome(team, config)
    host, told = WatchingHost(*losing), []
    with ShardTeam(task, host, 2, told.append, rows) as team:
        np.testing.assert_equal(outcome(team, config), expected)
    assert [messages for _, _, messages in expected[0]] == [True, True, False, False, True, False]
    # those of the first parameters, and of the two trainings whose messages were passed
    assert sum(host.rows_home) == 3 * 12
    assert len(told) == 1 + len(losing)
    assert host.calls["update and add"] >= 18


def test_rows_come_home_where_they_are_kept():
    config = config_of()
    host, kept = WatchingHost(), []
    with ShardTeam(make_task(config), host, 2, str, rows_needed(config)) as team:
        outcome(team, config, keep=lambda rows, round: kept.append((round, rows.copy())))
    assert sum(host.rows_home) == 6 * 12
    assert [round for round, _ in kept] == list(range(6))
    assert all(len({row.tobytes() for row in rows}) == 12 for round, rows in kept if round)


def test_a_peer_that_cannot_be_brought_is_named_as_in_one_process():
    config = config_of(range=1e-3)
    task, rows = make_task(config), rows_needed(config)
    texts = []
    for team in (InProcessTeam(task, rows), ShardTeam(task, FakeHost(), 2, str, rows)):
        with team:
            texts.append(refusal(team, config))
    told = [re.fullmatch(r"(parameter .*) of peer (\d+) (is beyond .*)", text) for text in texts]
    assert all(told), texts
    # each shard tells of the first of its members, whose first step is as long as everybody's
    (what, peer, why), (same, other, reason) = (found.groups() for found in told)
    assert (what, why) == (same, reason)
    assert what == "parameter '1.weight' (index 1 of the flat vector)"
    assert why.startswith("is beyond the range of -0.001 to 0.001")
    assert {int(peer), int(other)} <= set(drawn_in(config)(2))


def refusal(team, config):
    """Return why round 2, which passes no messages, is refused."""
    aggregation = SecureAggregation(config, "secured", choose_design(config), team.schema)
    peers = SimulatedPeers(team, aggregation, members=drawn_in(config))
    team.initialise()
    aggregation.common = team.parameters[0].copy()
    with pytest.raises(SecuredFLError) as caught:
        _ = peers.update(2), peers.average(2)
    return str(caught.value)
