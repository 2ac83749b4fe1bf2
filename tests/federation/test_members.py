"""Rounds that draw some of the peers: who trains and averages, what totals over rounds tell, and what is refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securedfl.designs import best
from securedfl.errors import ConfigError, InvalidInputError, PrivacyError
from securedfl.federation.algorithm3 import algorithm3
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import members
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.simulated.peers import SimulatedPeers
from securedfl.federation.train import resume, train
from securedfl.privacy.absence import Drawn
from securedfl.privacy.audit import Audit
from securedfl.privacy.ledger import Attempt, Ledger
from securedfl.protocols import by_name
from tests.federation.test_algorithm3 import Adders, aggregation
from tests.federation.tiny_runs import StopAfter, numbers

DRAWN = {
    "peers": 12,
    "peers_per_round": 6,
    "model": "linear",
    "optimizer": "sgd",
    "momentum": 0.5,
    "learning_rate": 0.1,
    "rounds": 3,
    "workers": 1,
}


def config_of(**changes):
    return TrainConfig.resolve({**DRAWN, **changes})


@pytest.mark.parametrize(
    ("peers", "count", "collusion", "block"),
    [(12, 6, 1, 3), (20, 10, 1, 5), (60, 20, 2, 4), (100, 10, 1, 5), (20, 7, 1, 1), (9, 3, 1, 3), (9, 3, 2, 1)],
)
def test_blocks_are_the_smallest_that_leave_two_honest_peers(peers, count, collusion, block):
    assert Drawn.chosen(peers, count, collusion=collusion).block == block


def test_members_come_from_the_seed_and_the_round():
    config = config_of()
    drawn = [members(config, round) for round in range(12)]
    assert drawn == [members(config, round) for round in range(12)]
    assert all(len(who) == 6 for who in drawn)
    assert len(set(drawn)) > 2
    assert drawn != [members(config_of(seed=1), round) for round in range(12)]
    # whole blocks of three
    assert all({peer // 3 * 3 + i for peer in who for i in range(3)} == set(who) for who in drawn)
    assert members(config_of(peers_per_round=12), 5) == tuple(range(12))


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), rounds=st.integers(1, 12), collusion=st.integers(1, 2))
def test_whatever_is_drawn_totals_over_rounds_are_sums_of_two_honest_peers_at_least(seed, rounds, collusion):
    block = Drawn.chosen(2 * COUNTS[collusion], COUNTS[collusion], collusion=collusion).block
    assert block == collusion + 2
    assert smallest_sum(block, seed, rounds, collusion) >= 2


def test_drawn_one_by_one_single_peers_are_soon_known():
    assert smallest_sum(1, seed=0, rounds=12, collusion=1) == 1


COUNTS = {1: 6, 2: 8}
"""How many of twice as many peers are drawn, by colluders."""


def smallest_sum(block, seed, rounds, collusion):
    """Return how many honest peers the smallest sum is over that the worst coalition computes from all rounds."""
    peers = 2 * COUNTS[collusion]
    drawn, random = Drawn(peers=peers, count=COUNTS[collusion], block=block), np.random.default_rng(seed)
    attempts = [Attempt(round=round, members=drawn.members(random)) for round in range(rounds)]
    shares = by_name("shares").on(best(COUNTS[collusion], 2), collusion=collusion)
    _, smallest = Ledger(Audit(shares), peers=peers).add(*attempts).worst_over_rounds(range(collusion))
    return len(smallest)


@pytest.mark.parametrize("protocol", ["plain", "grouped", "shares"])
def test_the_average_is_that_of_the_members_and_everybody_gets_it(protocol):
    class Some(Adders):
        def seat(self, peers):
            assert len(peers) == 9

        def update(self, round, report=None, only=None, *, private=False):
            self.parameters[list(only)] += (np.array(only)[:, None] + 1) / 10
            return [1.0] * len(only)

    config = config_of(peers_per_round=9)
    who = [members(config, round) for round in range(3)]
    assert len(set(who)) > 1
    team = Some(peers=12)
    secure = aggregation(protocol, design=best(9, 3), peers=12, peers_per_round=9)
    rounds = list(algorithm3(SimulatedPeers(team, secure, members=who.__getitem__), rounds=2))
    expected = np.mean(who[0]) + (np.mean(who[1]) + 1) / 10 + (np.mean(who[2]) + 1) / 10
    np.testing.assert_allclose(team.parameters, expected, rtol=1e-5)
    assert [len(outcome.losses) for outcome in rounds] == [0, 9, 9]
    assert all(outcome.average.error_max < 1e-5 for outcome in rounds)


def test_a_run_with_drawn_members_its_account_and_its_resumption(tmp_path):
    whole = config_of(methods="local,fedavg,secured,shares", bits=16, out=str(tmp_path / "whole"))
    summary = train(whole)
    rows = read_rows(tmp_path / "whole", Row)
    for row in rows:
        expected = None if row.method == "local" else members(whole, row.round)
        assert (None if row.tried is None else row.tried[0].members) == expected
        assert len(row.peer_accuracy) == 12
    certificate = json.loads((tmp_path / "whole" / "certificate.json").read_text())["secured"]
    assert certificate["peers"] == 6
    assert "draws 6 of 12 peers in fixed blocks of 3" in certificate["over_rounds"]
    ledger = json.loads((tmp_path / "whole" / "ledger.json").read_text())["secured"]
    assert ledger["peers"] == 12
    assert ledger["exposed_so_far"] == []
    assert len(ledger["smallest_sum_over_rounds"]) >= 2
    assert summary.peers == 12
    with pytest.raises(KeyboardInterrupt):
        train(whole.model_copy(update={"out": tmp_path / "part"}), observer=StopAfter("secured", 1))
    resume(tmp_path / "part")
    assert numbers(tmp_path / "part") == numbers(tmp_path / "whole")


def test_peers_that_are_not_drawn_do_not_train(tmp_path):
    config = config_of(methods="local", rounds=1, out=str(tmp_path / "run"))
    train(config)
    first, second = read_rows(tmp_path / "run", Row)
    who = members(config, 1)
    moved = [a != b for a, b in zip(first.peer_loss, second.peer_loss, strict=True)]
    assert moved == [peer in who for peer in range(12)]


def test_drawing_peers_one_by_one_is_refused_unless_exposure_is_allowed(tmp_path):
    config = config_of(peers_per_round=5, methods="secured", rounds=1, out=str(tmp_path / "run"))
    with pytest.raises(PrivacyError, match=r"can be subtracted.*peers_per_round = 4 or 6 or 3 would do with 12 peers"):
        train(config)
    assert not (tmp_path / "run").exists()
    train(config.model_copy(update={"allow_exposure": True}))
    certificate = json.loads((tmp_path / "run" / "certificate.json").read_text())
    assert "tells single peers' updates" in certificate["sentence"]
    # what promises nothing may draw as it likes
    train(config.model_copy(update={"methods": ("fedavg",), "out": tmp_path / "open"}))


def test_errors_name_the_peer_and_not_its_place_among_the_members():
    team = Adders(peers=12)
    secure = aggregation("grouped", design=best(9, 3), peers=12, peers_per_round=9)
    team.parameters[:] = 0
    secure(team.parameters, 0)
    who = {round: members(config_of(peers_per_round=9), round) for round in range(1, 9)}
    round = next(round for round in who if 7 in who[round] and who[round].index(7) != 7)
    team.parameters[7] = 100
    with pytest.raises(InvalidInputError, match="of peer 7 is beyond the range"):
        secure(team.parameters, round)


def test_numbers_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="there are 12 peers; draw fewer"):
        config_of(peers_per_round=13)
    with pytest.raises(ConfigError, match="peers_per_round = 2"):
        config_of(peers_per_round=2)
