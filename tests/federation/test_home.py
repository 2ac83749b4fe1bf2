"""What stays at home in a federation: counters and local parameters of every peer, through rounds and restarts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from securedfl.errors import InvalidInputError
from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.peers.learner import EntryLearner
from securedfl.federation.peers.update import Update, load_update, save_update
from securedfl.federation.run_folder import checkpoint
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.task import make_task
from securedfl.federation.train import resume, train
from securedfl.learning.training.processes import ProcessTeam
from securedfl.learning.training.team import InProcessTeam
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

RUNNING = {"dataset": "blobs", "width": 0.05, "batch_size": 8, "peers": 5, "rounds": 3, "workers": 1}


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


@pytest.mark.parametrize("protocol", ["shares", "grouped"])
def test_counters_are_each_peers_own_and_never_leave(monkeypatch, tmp_path, protocol):
    install(monkeypatch, tmp_path / "site", BLOBS, datasets={"blobs": "blobs"})
    config = configured(tmp_path / "run", protocol=protocol, keep_updates=1, **RUNNING)
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
    """With all but the bias of the last layer at home, peers are evaluated with models of their own."""
    train(configured(tmp_path / "run", local=["12.weight"], rounds=2))
    point = saved(tmp_path / "run")
    assert len(point.parameters) == 1
    heads = np.stack([state["home.12.weight"] for state in point.states])
    assert heads.shape == (9, 10, 128)
    assert np.ptp(heads, axis=0).max() > 0.01
    train(configured(tmp_path / "plain", rounds=2))
    size = saved(tmp_path / "plain").parameters.shape[1]
    assert point.parameters.shape[1] == size - 1280


def test_two_processes_keep_the_same_at_home_as_one():
    task = make_task(TrainConfig.resolve({"peers": 4, "local": ["12.*"]}))
    found = []
    for make in (InProcessTeam, lambda task: ProcessTeam(task, 2)):
        with make(task) as team:
            team.initialise()
            for r in (1, 2):
                team.update(r)
                team.parameters[:] = team.parameters.mean(axis=0)
            found.append((team.parameters.copy(), team.evaluate(), team.states()))
    np.testing.assert_equal(found[0], found[1])


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
        return loss
    return model.to(getattr(torch, settings.get("dtype", "float32"))), [1, 2], update
"""


@pytest.fixture
def entry(monkeypatch, tmp_path):
    (tmp_path / "home_entry.py").write_text(ENTRY)

    def make(**settings):
        given = {"name": "site", "seed": 0, "classes": 3, **settings}
        return EntryLearner("home_entry:make", given, tmp_path, local=["2.*"])

    with torch.random.fork_rng():
        yield make
    monkeypatch.delitem(__import__("sys").modules, "home_entry", raising=False)


def test_an_entry_point_keeps_frozen_local_and_counters(entry):
    first, second = entry(), entry(seed=1, classes=4)
    assert [leaf.name for leaf in first.schema.leaves] == [
        "0.weight",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
    ]
    # heads of another shape do not matter
    assert first.schema.hash == second.schema.hash
    first.schema.require(second.schema, 1)
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
    save_update(tmp_path, Update(1, first, whole.state()))
    second, _ = whole.update(first, 2)

    resumed = entry(dtype=dtype)
    kept = load_update(tmp_path)
    resumed.restore(kept.state)
    np.testing.assert_array_equal(resumed.update(kept.vector, 2)[0], second)
    for name, array in whole.whole(second).items():
        np.testing.assert_array_equal(resumed.whole(second)[name], array)
    assert not np.array_equal(entry(dtype=dtype).update(first, 2)[0], second)
