"""The library for one's own loop."""

from __future__ import annotations

import importlib.util
import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import securedfl
from securedfl.cli import app
from securedfl.errors import ConfigError, InvalidInputError, PeerLostError
from securedfl.federation.apps.app import EntryPoint
from securedfl.learning.training.common_optimizer import CommonOptimizer
from securedfl.network.peer import Peer
from securedfl.reporting.report import write_report
from tests.federation.learners import learner_of
from tests.network.peer_processes import in_threads

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_join_averages_weighted_in_place(federation):
    made = federation(3, protocol="shares", group_size=2, weighted=True, settings={"max_weight": 10})
    models = [{"w": np.full(5, float(k)), "steps": np.array(k)} for k in range(3)]

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            assert not peer.resume_(models[k])
            for _ in range(2):
                peer.average_(models[k], weight=(1, 2, 7)[k])
                models[k]["w"] += k
            assert peer.last.members == (0, 1, 2)

    in_threads(work, 3)
    expected = (0 * 1 + 1 * 2 + 2 * 7) / 10
    for k, model in enumerate(models):
        np.testing.assert_allclose(model["w"], 2 * expected + k, atol=1e-5)
        out = made.folder / f"out-p{k}"
        rows = made.rows(k)
        assert [(row["round"], row["members"]) for row in rows] == [(0, made.names), (1, made.names)]
        assert all(row["train_seconds"] >= 0 and row.get("samples") is None for row in rows)
        # the log may have begun the next round before they left
        assert json.loads((out / "ledger.json").read_text())["averages"] in (2, 3)
        assert "seen from" in write_report(out).read_text()
    shown = CliRunner().invoke(app, ["audit", "--run", str(made.folder / "out-p0")])
    assert (shown.exit_code, "Ledger of the run" in shown.output) == (0, True), shown.output
    assert [int(model["steps"]) for model in models] == [0, 1, 2]


def test_weights_that_leave_no_average_end_nobody(federation, caplog):
    """All members see the same: the model stays, and the next round goes on."""
    made = federation(3, protocol="shares", group_size=2, weighted=True, settings={"max_weight": 2})
    models = [np.full(4, float(k), dtype=np.float32) for k in range(3)]
    seen: dict[int, list[float]] = {k: [] for k in range(3)}

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            for weight in (1.0, 0.0, 1.0):
                models[k] += 1
                peer.average_(models[k], weight=weight)
                seen[k].append(float(models[k][0]))

    in_threads(work, 3)
    assert all(np.allclose(seen[k], [2, 2, 3], atol=1e-5) for k in range(3)), seen
    assert "so that the model stays as it is: the weights add up to zero" in caplog.text


def test_a_first_total_of_no_use_ends_nobody(federation, caplog):
    """There is no model to stay with: after several attempts the round is void, and the next one goes on."""
    deadlines = {"heartbeat": 0.2, "absent": 1}
    settings = {"max_weight": 2}
    made = federation(3, protocol="shares", group_size=2, weighted=True, settings=settings, deadlines=deadlines)
    models = [np.full(4, float(k), dtype=np.float32) for k in range(3)]

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            peer.average_(models[k], weight=0.0)
            assert (peer.last.void, models[k].tolist()) == (True, [k] * 4)
            peer.average_(models[k], weight=1.0)

    in_threads(work, 3)
    np.testing.assert_allclose(models, 1, atol=1e-5)
    assert "makes no progress: the weights add up to zero" in caplog.text


def test_what_is_local_stays_at_home_and_comes_back_after_a_restart(federation):
    made = federation(3, protocol="shares", group_size=2, local=["head"])

    def fresh(k):
        return {"body": np.full(4, float(k)), "head": np.full(k + 1, float(k)), "steps": np.array(k)}

    models = [fresh(k) for k in range(3)]

    def first(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            models[k]["head"] += 10
            peer.average_(models[k])

    in_threads(first, 3)
    expected = [model["head"].copy() for model in models]
    assert [head.tolist() for head in expected] == [[10], [11, 11], [12, 12, 12]]
    models = [fresh(k) for k in range(3)]

    def again(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            assert peer.resume_(models[k])

    in_threads(again, 3)
    for k, model in enumerate(models):
        np.testing.assert_allclose(model["body"], 1, atol=1e-5)
        np.testing.assert_array_equal(model["head"], expected[k])
        assert model["steps"] == k


def test_a_second_call_after_a_caught_error_brings_the_same_parameters(federation, monkeypatch):
    """Whatever the loop did to its model meanwhile: a second total with other parameters would tell the difference."""
    made = federation(3, protocol="resilient", group_size=2)
    average, brought = Peer.average, []

    def failing_once(self, vector, round):
        if self.settings.number == 1:
            brought.append((round, vector.copy()))
            if len(brought) == 1:
                raise MemoryError
        return average(self, vector, round)

    monkeypatch.setattr(Peer, "average", failing_once)
    models = [{"w": np.full(5, float(k))} for k in range(3)]

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            if k == 1:
                with pytest.raises(MemoryError):
                    peer.average_(models[k])
                models[k]["w"] += 100
            peer.average_(models[k])

    in_threads(work, 3)
    (first, vector), (second, same) = brought
    assert first == second == 0
    np.testing.assert_array_equal(vector, same)
    for model in models:
        np.testing.assert_allclose(model["w"], 1, atol=1e-5)


def test_parameters_that_cannot_be_averaged_are_not_kept(federation):
    """The loop mends its model and goes on: nothing was shared, so nothing is brought again."""
    made = federation(3, protocol="resilient", group_size=2, range=1e6)
    models = [{"w": np.full(5, float(k))} for k in range(3)]

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            for bad, text in (np.nan, "not finite"), (np.inf, "not finite"), (1e9, "beyond the range"):
                if k == 1:
                    with pytest.raises(InvalidInputError, match=text):
                        peer.average_({"w": np.array([1.0, 1, bad, 1, 1])})
            peer.average_(models[k])

    in_threads(work, 3)
    for model in models:
        np.testing.assert_allclose(model["w"], 1, atol=1e-5)


def test_an_optimiser_a_list_or_parameters_average_alike_until_the_run_is_done(federation):
    made = federation(3, protocol="shares", group_size=2, rounds=2)
    modules = [torch.nn.Linear(2, 1) for _ in range(3)]
    for k, module in enumerate(modules):
        torch.nn.init.constant_(module.weight, float(k))
        torch.nn.init.constant_(module.bias, float(k))
    handed = [
        list(modules[0].parameters()),
        [parameter.detach().numpy() for parameter in modules[1].parameters()],
        [parameter.detach() for parameter in modules[2].parameters()],
    ]

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            assert not peer.done
            peer.average_(handed[k])
            peer.average_(modules[0].parameters() if k == 0 else handed[k])
            assert not peer.done
            peer.average_(handed[k])
            assert peer.done
            with pytest.raises(PeerLostError, match="all 3 averages of this run are done"):
                peer.average_(handed[k])
        with pytest.raises(ConfigError, match="has left the federation"):
            peer.average_(handed[k])

    in_threads(work, 3)
    for module in modules:
        torch.testing.assert_close(module.weight.detach(), torch.ones(1, 2), rtol=0, atol=1e-5)
        torch.testing.assert_close(module.bias.detach(), torch.ones(1), rtol=0, atol=1e-5)


def load_example(name):
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_example_of_ones_own_loop(federation, capsys):
    made = federation(3, protocol="shares", group_size=2, rounds=20)
    example = load_example("own_loop")
    in_threads(lambda k: example.main(str(made.folder / f"p{k}.toml")), 3)
    outputs = capsys.readouterr().out.splitlines()
    assert len(outputs) == 3
    assert len(set(outputs)) == 1
    np.testing.assert_allclose(json.loads(outputs[0]), [[1.0, -2.0, 0.5]], atol=0.1)


def test_example_of_an_entry_point():
    learner = learner_of(EntryPoint.of("entry_point:make", EXAMPLES).make({"name": "site"}, 0))
    vector = learner.initial()
    for round in (1, 2):
        vector, loss = learner.update(vector, round)
    score = learner.evaluate(vector)
    assert (score.count, learner.samples.train) == (20, 180)
    assert loss < 0.7


def test_the_common_optimisers_state_comes_back_after_an_absence_a_restart_and_a_lost_result(federation):
    """It is part of what all peers agree on, so whoever fetches the model goes on with the very same bits."""
    optimizer = CommonOptimizer(kind="adam", learning_rate=0.1, momentum=0.9, adaptivity=0.01)
    made = federation(
        5,
        protocol="resilient",
        common_optimizer="adam",
        common_learning_rate=0.1,
        common_adaptivity=0.01,
        rounds=4,
        deadlines={"absent": 1},
    )
    models = [{"w": np.linspace(0, 1, 6) * k} for k in range(5)]
    together, last = threading.Barrier(5, timeout=50), []

    def train(k, round):
        models[k]["w"] += 0.1 * (k + 1) * (round + 1)

    def work(k):
        path = made.folder / f"p{k}.toml"
        with securedfl.join(path) as peer:
            for round in (0, 1):
                train(k, round)
                peer.average_(models[k])
            if k != 4:
                together.wait()
                train(k, 2)
                peer.average_(models[k])
                assert set(peer.last.members) == {0, 1, 2, 3}
                together.wait()
                together.wait()
                train(k, 3)
                peer.average_(models[k])
                last.append(peer.last)
        if k == 4:
            together.wait()  # it has left, and the others go on without it
            together.wait()
            models[k]["w"][:] = 0
            with securedfl.join(path) as peer:
                assert peer.resume_(models[k])
                peer.average_(models[k])  # too late for round 2: it gets what the others made of it
                assert peer.round == 3
                assert peer.last.fetched
                together.wait()
                train(k, 3)
                peer.average_(models[k])

    in_threads(work, 5)
    for model in models[1:]:
        np.testing.assert_array_equal(model["w"], models[0]["w"])
    assert "array" not in repr(last[0])
    assert len(repr(last[0])) < 400

    # all start again, one of them without its stored results, which it fetches
    for file in (made.folder / "out-p1" / "state" / "results").glob("*.bin"):
        file.unlink()

    def again(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            assert peer.resume_(models[k])
            assert peer.round == 4
            train(k, 4)
            peer.average_(models[k])
            last.append(peer.last)

    in_threads(again, 5)
    for model in models[1:]:
        np.testing.assert_array_equal(model["w"], models[0]["w"])

    held, everybody = None, (0, 1, 2, 3, 4)
    for round, members in enumerate((everybody, everybody, (0, 1, 2, 3), last[0].members, last[-1].members)):
        starts = [np.linspace(0, 1, 6) * k if held is None else optimizer.model(held) for k in members]
        brought = [start + 0.1 * (k + 1) * (round + 1) for start, k in zip(starts, members, strict=True)]
        held = optimizer.step(held, np.mean(brought, axis=0))
    np.testing.assert_allclose(models[0]["w"], optimizer.model(held), atol=1e-4)
