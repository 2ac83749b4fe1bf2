"""What stays at home in a federation: counters and local parameters of every peer, through rounds and restarts."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.apps.app import EntryPoint
from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.learner import known_learner
from securedfl.federation.peers.update import StoredUpdate, load_update, save_update
from securedfl.federation.run_folder import checkpoint
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.task import make_task
from securedfl.federation.train import resume, train
from securedfl.learning.training.team import InProcessTeam
from securedfl.learning.training.trainer import one_thread
from tests.federation.learners import learner_of
from tests.learning.plugin import install

BLOBS = """
import numpy as np
from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.datasets import Source

def load(data_dir, report):
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 150)
    x = random.random((150, 1, 9, 9)) + y[:, None, None, None]
    return Dataset(name="blobs", x=x.astype(np.float32), y=y, classes=3)

blobs = Source(load=load, about="made up", defaults={"model": "resnet18-running", "dealing": "dirichlet"})
"""

RUNNING = {"dataset": "blobs", "width": 0.05, "batch_size": 8, "peers": 5, "rounds": 3, "protocol": "shares"}


class StopAfter(Observer):
    def __init__(self, round):
        self.at = round

    def round_finished(self, row):
        if row.round == self.at:
            raise KeyboardInterrupt


def configured(out, **settings):
    return TrainConfig.resolve({"methods": "secured", "workers": 1, "out": str(out), **settings})


def saved(folder, method="secured"):
    return checkpoint.load(folder / "checkpoints" / f"{method}.safetensors")


def numbers(folder):
    return [replace(row, train_seconds=0.0, average_seconds=0.0) for row in read_rows(folder, Row)]


@pytest.mark.parametrize("protocol", ["shares", "resilient"])
def test_counters_are_each_peers_own_and_never_leave(monkeypatch, tmp_path, protocol):
    install(monkeypatch, tmp_path / "site", BLOBS, datasets={"blobs": "blobs"})
    config = configured(tmp_path / "run", keep_updates=1, **{**RUNNING, "protocol": protocol})
    train(config)
    task = make_task(config)
    states = saved(tmp_path / "run").states
    counters = [key for key in states[0] if key.endswith("num_batches_tracked")]
    assert len(counters) == 20
    batches = [3 * -(-count // 8) for count in task.samples]
    assert len(set(batches)) > 1
    for key in counters:
        assert [int(state[key]) for state in states] == batches

    with InProcessTeam(task) as team:
        assert not any(leaf.integer for leaf in team.schema.leaves)
        rows = checkpoint.load_parameters(tmp_path / "run/updates/secured-3.safetensors")
        assert rows.shape == (5, team.schema.size)


@pytest.mark.parametrize("settings", [RUNNING, {"local": "12.*,0.bias", "rounds": 3, "peers": 9}])
def test_a_resumed_run_goes_on_with_what_is_at_home(monkeypatch, tmp_path, settings):
    install(monkeypatch, tmp_path / "site", BLOBS, datasets={"blobs": "blobs"})
    train(configured(tmp_path / "whole", **settings))
    with pytest.raises(KeyboardInterrupt):
        train(configured(tmp_path / "run", **settings), observer=StopAfter(1))
    assert resume(tmp_path / "run").finished
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")
    np.testing.assert_equal(vars(saved(tmp_path / "run")), vars(saved(tmp_path / "whole")))


def test_peers_share_all_but_what_is_local(tmp_path):
    train(configured(tmp_path / "run", local=["12.weight"], rounds=2))
    point = saved(tmp_path / "run")
    assert len(point.parameters) == 1
    heads = np.stack([state["home.12.weight"] for state in point.states])
    assert heads.shape == (9, 10, 128)
    assert np.ptp(heads, axis=0).max() > 0.01
    train(configured(tmp_path / "plain", rounds=2))
    size = saved(tmp_path / "plain").parameters.shape[1]
    assert point.parameters.shape[1] == size - 1280


def test_every_peer_is_scored_with_its_own_model():
    with InProcessTeam(make_task(TrainConfig.resolve({"peers": 3, "local": ["12.*"]}))) as team:
        team.initialise()
        team.update(1)
        team.parameters[:] = team.parameters.mean(axis=0)
        before, states = [score for score, _ in team.evaluate_each()], team.states()
        # with a last layer of zeros all classes score alike: the loss is log(10) per sample
        states[1] |= {name: np.zeros_like(value) for name, value in states[1].items() if name.startswith("home.")}
        team.restore(team.parameters.copy(), states)
        after = [score for score, _ in team.evaluate_each()]
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1].loss == pytest.approx(after[1].count * np.log(10), rel=1e-5)


@pytest.fixture
def threads_restored():
    with one_thread():
        yield


@pytest.mark.usefixtures("threads_restored")
def test_a_site_that_was_added_has_no_part_of_a_known_data_set(tmp_path):
    roster = [{"name": f"p{k}", "fingerprint": f"{k}" * 64, "added": k == 3} for k in range(4)]
    federation = FederationConfig.resolve({"peers": roster, "train": {"protocol": "shares", "group_size": 2}})
    added = PeerConfig(name="p3", federation=tmp_path / "f.toml", out=tmp_path / "p3")
    with pytest.raises(ConfigError, match=r"digits is dealt among the 3 sites .* p3 was added: it needs .* an entry"):
        known_learner(federation, added)


@pytest.mark.usefixtures("threads_restored")
def test_a_real_peer_with_a_known_model_keeps_its_own(tmp_path):
    roster = [{"name": f"p{k}", "address": f"127.0.0.1:{9000 + k}", "fingerprint": f"{k}" * 64} for k in range(3)]
    train = {"protocol": "shares", "group_size": 2, "local": ["12.*"], "initial": "own"}
    federation = FederationConfig.resolve({"peers": roster, "train": train})
    learners = [
        known_learner(federation, PeerConfig(name=f"p{k}", federation=tmp_path / "f.toml", out=tmp_path / f"p{k}"))
        for k in (0, 1, 0)
    ]
    mean = (learners[0].initial() + learners[1].initial()) / 2
    one, two = (learner.whole(mean) for learner in learners[:2])
    np.testing.assert_array_equal(one["9.weight"], two["9.weight"])
    assert not np.array_equal(one["12.weight"], two["12.weight"])
    vector, _ = learners[0].update(mean, 1)
    assert not np.array_equal(learners[0].whole(vector)["12.weight"], one["12.weight"])
    # after a restart
    learners[2].restore(learners[0].state())
    np.testing.assert_equal(learners[2].whole(vector), learners[0].whole(vector))
    np.testing.assert_array_equal(learners[2].update(vector, 2)[0], learners[0].update(vector, 2)[0])


def test_a_pattern_without_a_match_is_an_error_before_training(tmp_path):
    with pytest.raises(InvalidInputError, match=r"'heads\.\*' in local matches no parameter; the nearest name is"):
        train(configured(tmp_path / "run", local=["heads.*"]))


ENTRY = """
import torch

def make(settings):
    torch.manual_seed(settings["seed"])
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, settings["classes"]))
    model[0].bias.requires_grad_(False)
    def update(model, data, round):
        model.train()
        x = (torch.arange(6.0).view(3, 2) + round).to(model[0].weight.dtype)
        loss = model(x).square().sum()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter -= 0.01 * parameter.grad
        model.zero_grad()
        return loss.item()
    return model.to(getattr(torch, settings.get("dtype", "float32"))), [1, 2], update
"""


@pytest.fixture
def entry(monkeypatch, tmp_path):
    (tmp_path / "home_entry.py").write_text(ENTRY)

    def make(**settings):
        given = {"name": "site", "seed": 0, "classes": 3, **settings}
        return learner_of(EntryPoint.of("home_entry:make", tmp_path).make(given, 0), local=["2.*"])

    with torch.random.fork_rng():
        yield make
    monkeypatch.delitem(sys.modules, "home_entry", raising=False)


def test_an_entry_point_keeps_frozen_local_and_counters(entry):
    first, second = entry(), entry(seed=1, classes=4)
    assert [leaf.name for leaf in first.trainer.schema.leaves] == [
        "0.weight",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
    ]
    # heads of another shape do not matter
    assert first.trainer.schema.hash == second.trainer.schema.hash
    first.trainer.schema.require(second.trainer.schema, 1)
    before = first.whole(first.initial())
    mean = (first.initial() + second.initial()) / 2
    after = first.whole(mean)
    for name in ("0.bias", "2.weight", "2.bias", "1.num_batches_tracked"):
        np.testing.assert_array_equal(after[name], before[name])
    np.testing.assert_allclose(after["0.weight"].reshape(-1), mean[:4])
    first.update(mean, 1)
    assert first.whole(mean)["1.num_batches_tracked"] == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_entry_point_goes_on_with_what_is_at_home(entry, tmp_path, dtype):
    whole = entry(dtype=dtype)
    first, _ = whole.update(whole.initial(), 1)
    assert first.dtype == np.float32
    save_update(tmp_path, StoredUpdate(1, first, whole.state()))
    second, _ = whole.update(first, 2)

    resumed = entry(dtype=dtype)
    kept = load_update(tmp_path)
    resumed.restore(kept.state)
    np.testing.assert_array_equal(resumed.update(kept.vector, 2)[0], second)
    for name, array in whole.whole(second).items():
        np.testing.assert_array_equal(resumed.whole(second)[name], array)
    assert not np.array_equal(entry(dtype=dtype).update(first, 2)[0], second)
