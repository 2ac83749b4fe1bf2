"""Algorithm 3 on a team that computes by hand: the order of things, and the average of every protocol."""

import numpy as np
import pytest

from securedfl.designs import Design, best
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.algorithm3 import algorithm3
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import bringing
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.summary import MethodSummary, Summary
from securedfl.federation.simulated.aggregation import SecureAggregation, SimulatedAverage, true_mean
from securedfl.federation.simulated.peers import SimulatedPeers
from securedfl.learning.training.task import Score
from securedfl.parameters import Schema


class Adders:
    """A team whose peer k starts at k and adds k + 1 in every round."""

    workers, rows_travel = 1, False

    def __init__(self, peers=9, size=3):
        self.parameters = np.full((peers, size), np.nan, np.float32)
        self.calls = []

    def initialise(self):
        self.calls.append("initialise")
        self.parameters[:] = np.arange(len(self.parameters))[:, None]

    def update(self, round, report=None, only=None, *, private=False):
        self.calls.append(f"update {round}")
        self.parameters += np.arange(1, len(self.parameters) + 1)[:, None]
        if report is not None:
            report(len(self.parameters))
        return [1.0 + peer for peer in range(len(self.parameters))]

    def evaluate_each(self):
        self.calls.append("evaluate")
        return [(Score(peer % 2, 2.0 * peer, 1 + peer), None) for peer in range(len(self.parameters))]


def aggregation(protocol="grouped", *, design=None, names="abc", weights=None, **settings):
    """Return how the method secured averages models that have one number of each name."""
    design = design or best(9, 3)
    given = {"peers": design.n, "protocol": protocol, "methods": "secured", "weighted": weights is not None, **settings}
    schema = Schema.of({name: np.zeros(1, np.float32) for name in names})
    return SecureAggregation(TrainConfig.resolve(given), "secured", design, schema, samples=weights or ())


def test_rounds_follow_the_paper():
    team = Adders()
    rounds = list(algorithm3(SimulatedPeers(team, aggregation(range=32.0)), rounds=2))
    assert team.calls == ["initialise", "evaluate", "update 1", "evaluate", "update 2", "evaluate"]
    assert [r.number for r in rounds] == [0, 1, 2]
    np.testing.assert_allclose(team.parameters, 4 + 5 + 5, rtol=1e-5)
    assert (rounds[0].losses, rounds[0].train_seconds) == ((), 0.0)
    assert all(r.average.error_max < 1e-4 for r in rounds)


def test_local_only_never_averages():
    team = Adders(peers=3)
    rounds = list(algorithm3(SimulatedPeers(team, None), rounds=1))
    assert [r.average for r in rounds] == [SimulatedAverage(round=0), SimulatedAverage(round=1)]
    assert team.parameters[:, 0].tolist() == [1, 3, 5]


def test_a_restored_team_goes_on_without_initialisation():
    team = Adders()
    team.parameters[:] = 1
    peers = SimulatedPeers(team, aggregation(range=32.0))
    assert [r.number for r in algorithm3(peers, rounds=3, after=2)] == [3]
    assert team.calls == ["update 3", "evaluate"]


def test_a_peer_that_was_left_behind_goes_on_where_the_others_are():
    """A real peer may be given the result of a later round than the one that it brought its parameters to."""

    class LeftBehind(SimulatedPeers):
        def average(self, round):
            return SimulatedAverage(round=4 if round == 2 else round)

    team = Adders()
    outcomes = algorithm3(LeftBehind(team, None), rounds=6)
    assert [outcome.number for outcome in outcomes] == [0, 1, 4, 5, 6]
    assert [call for call in team.calls if "update" in call] == [f"update {r}" for r in (1, 2, 5, 6)]


def test_progress_is_told():
    counts = []
    team = Adders()
    list(algorithm3(SimulatedPeers(team, None, counts.append), rounds=2))
    assert counts == [9, 9]


@pytest.mark.parametrize(
    ("protocol", "given"), [("grouped", {"range": 32.0}), ("shares", {"range": 0.5, "bits": 64}), ("plain", {})]
)
def test_weighted_averages_count_samples(protocol, given):
    rows = np.arange(18, dtype=np.float32).reshape(9, 2)
    rows *= np.float32(given.get("range", 32.0) / 32)
    weights = [float(k + 1) for k in range(9)]
    expected = np.average(rows, axis=0, weights=weights)
    average = aggregation(protocol, weights=weights, **given)(rows, 1)
    np.testing.assert_allclose(rows, np.tile(expected, (9, 1)), rtol=1e-4)
    assert average.error_max < 1e-3


def test_differences_are_averaged_after_round_0():
    """In a range that the parameters themselves would not fit."""
    parameters = np.array([[100.0 + k, -50.0] for k in range(9)], np.float32)
    aggregate = aggregation(range=256.0)
    aggregate(parameters, 0)
    small = aggregation(range=0.5)
    small.restore(parameters[0], None)
    parameters += np.linspace(-0.4, 0.4, 9, dtype=np.float32)[:, None]
    small(parameters, 1)
    np.testing.assert_allclose(parameters, [[104, -50]] * 9, atol=1e-5)


def test_beyond_the_range_is_an_error_or_a_clip_that_is_counted():
    rows = np.full((9, 4), 0.1, np.float32)
    rows[3, 1], rows[5, 2] = 7.0, -7.0
    with pytest.raises(InvalidInputError, match=r"parameter 'b' .* of peer 3 is beyond the range of -1 to 1"):
        aggregation(range=1.0, names="abcd")(rows.copy(), 1)
    average = aggregation(range=1.0, beyond="clip")(rows, 1)
    assert average.clipped == 2
    np.testing.assert_allclose(rows[0], [0.1, 1.8 / 9, -0.2 / 9, 0.1], atol=1e-6)


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("weights", [None, [1.0] * 9])
def test_a_clip_fits_a_range_that_float32_cannot_hold(weights, bits):
    """float32's nearest number to 0.1 is beyond it."""
    aggregate = aggregation(range=0.1, bits=bits, beyond="clip", weights=weights)
    aggregate.restore(np.zeros(2, np.float32), None)
    rows = np.array([[5.0, -5.0]] * 9, np.float32)
    assert aggregate(rows, 1).clipped == 18
    np.testing.assert_allclose(rows, [[0.1, -0.1]] * 9, atol=1e-4)


@pytest.mark.parametrize("weights", [None, [1.0] * 8 + [3.0]])
def test_sixteen_bits_lose_nothing_over_rounds(weights):
    """What is rounded off comes again, so the sum over rounds is off by less than a step, not by a step per round."""
    rng = np.random.default_rng(1)
    model, exact = np.zeros((9, 50), np.float32), np.zeros(50)
    aggregate = aggregation(bits=16, weights=weights)
    aggregate.restore(model[0], None)
    moves = rng.normal(0, 0.003, (40, 9, 50)).astype(np.float32)
    for round, move in enumerate(moves, start=1):
        exact += np.average(move, axis=0, weights=weights)
        model += move
        sent = aggregate(model, round).bytes_per_peer
    step = 2.0**-12
    assert 0 < np.abs(model[0] - exact).max() < 2 * step
    assert sent == 0.5 * aggregation(weights=weights)(model, 1).bytes_per_peer


def test_random_rounding_is_right_on_average():
    rows = np.full((9, 20_000), 0.00011, np.float32)
    aggregate = aggregation(bits=16)
    aggregate.restore(np.zeros(20_000, np.float32), None)
    aggregate(rows, 1)
    assert rows[0].mean() == pytest.approx(0.00011, rel=0.02)


def test_sixteen_bits_are_too_few_for_the_weights_of_very_many():
    with pytest.raises(ConfigError, match="too few for the weights of 99 peers"):
        aggregation(design=best(99, 3), bits=16, weights=[1.0] * 99)(np.zeros((99, 2), np.float32), 1)


def test_too_few_bits_are_told_before_the_first_round():
    config = TrainConfig.resolve({"peers": 99, "methods": ("secured",), "bits": 16, "weighted": True})
    with pytest.raises(ConfigError, match="too few for the weights of 99 peers"):
        bringing(config, "secured", best(99, 3), "float32")


@pytest.mark.parametrize(("given", "first"), [(None, 2.0**16), (0.5, 2.0**16), (1e6, 1e6)])
def test_round_0_has_a_range_that_fits_models_or_a_wider_one(given, first):
    config = TrainConfig.resolve({"methods": ("secured",), "range": given})
    how = bringing(config, "secured", best(9, 3), "float32")
    assert (how(0).averaging.codec.limit(64), how(0).averaging.codec.bits) == (first, 64)
    assert how(1).averaging.codec.range == given


def test_true_mean_is_float64():
    rows = np.array([[1e8], [1.0], [-1e8]], np.float32)
    assert true_mean(rows).tolist() == [1 / 3]
    assert true_mean(rows, [0, 2, 0]).tolist() == [1.0]


def test_bytes_are_what_peers_send():
    rows = np.ones((9, 10), np.float32)
    assert aggregation("plain", design=Design.everyone(9))(rows, 0).bytes_per_peer == pytest.approx(2 * 8 * 40 / 9)


def test_nan_is_refused_with_the_name_of_the_parameter():
    rows = np.ones((9, 3), np.float32)
    rows[4, 2] = np.nan
    with pytest.raises(InvalidInputError, match=r"peer 4 has nan at parameter 'bias'"):
        aggregation(names=["a", "b", "bias"])(rows, 1)


def test_rows_pool_over_all_test_data_and_training_samples():
    outcome = list(algorithm3(SimulatedPeers(Adders(peers=3), None), rounds=1))[1]
    row = Row.pooled("local", outcome.number, outcome.scores, list(zip(outcome.losses, [1, 1, 2], strict=True)))
    assert row.accuracy == 1 / 6
    assert row.loss == 1.0
    assert row.peer_accuracy == (0, 1 / 2, 0)
    assert row.train_loss == 9 / 4
    assert (row.error_mse, row.bytes_per_peer) == (None, 0)


def test_the_summary_takes_the_best_round_and_leaves_out_the_initial_average():
    def row(round, accuracy, error_mse, error_max, sent):
        errors = {"error_mse": error_mse, "error_max": error_max}
        times = {"train_seconds": 1.0, "average_seconds": 0.5}
        return Row(method="secured", round=round, accuracy=accuracy, loss=1.0, bytes_per_peer=sent, **errors, **times)

    rows = [row(0, 0.1, 9.0, 9.0, 99), row(1, 0.8, 1.0, 1.0, 10), row(2, 0.7, 3.0, 2.0, 10)]
    found = MethodSummary.of("SecureD-FL", rows)
    assert (found.best_accuracy, found.best_round, found.final_accuracy) == (0.8, 1, 0.7)
    assert (found.mean_error, found.max_error, found.bytes_per_peer_per_round) == (2.0, 9.0, 10)
    assert (found.train_seconds, found.average_seconds) == (3.0, 1.5)
    summary = Summary(peers=9, rounds=2, methods={"local": MethodSummary.of("Local-Only", [])})
    assert summary.to_dict()["methods"] == {"local": {"label": "Local-Only", "rounds": None}}
