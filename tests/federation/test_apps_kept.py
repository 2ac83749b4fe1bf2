"""Apps in simulations: what is kept of them, how many samples they have, and that methods do not touch each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import securedfl
from securedfl import App
from securedfl.federation.apps.app import EntryPoint
from securedfl.federation.apps.task import AppTask
from securedfl.federation.config import TrainConfig


def normed(settings):
    """An app with batch normalisation, whose buffers stand between its parameters."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(settings["number"]))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def update(model, _data, _round):
        model.train()
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    return App(model=model, data=(x, x), update=update)


@pytest.mark.parametrize(("integers", "local"), [("own", ()), ("average", ()), ("average", ("2.*",))])
def test_one_peers_model_of_an_app_is_loaded_as_it_was(tmp_path, integers, local):
    out = tmp_path / "run"
    securedfl.train(normed, peers=3, rounds=2, methods="fedavg", out=out, integers=integers, local=local)
    empty = normed({"number": 0}).model
    found = securedfl.load(out, "fedavg", peer=1, model=empty).state_dict()
    # with something at home there is no model that is nobody's
    common = {} if local else securedfl.load(out, "fedavg")
    assert int(found["1.num_batches_tracked"]) == 2
    assert (found["1.running_var"] > 0).all()
    for name, value in common.items():
        if "num_batches" not in name:
            torch.testing.assert_close(found[name], torch.as_tensor(value))
    other = securedfl.load(out, "fedavg", peer=2, model=normed({"number": 0}).model).state_dict()
    assert torch.equal(found["0.weight"], other["0.weight"])
    assert torch.equal(found["2.weight"], other["2.weight"]) == (not local)


def test_what_is_kept_of_an_app_does_not_change_while_the_next_round_is_trained(tmp_path):
    """A checkpoint is written in the background."""
    config = TrainConfig.resolve({"entry": "app:make", "peers": 3, "rounds": 2, "out": str(tmp_path / "run")})

    def make(_settings):
        total = {"sum": np.zeros(3)}

        def update(model, _data, _round):
            model["w"] += 1.0
            total["sum"] += 1.0

        update.state_dict, update.load_state_dict = lambda: total, total.update
        return App(model={"w": np.zeros(3)}, data=np.zeros(5), update=update)

    trainer = AppTask(EntryPoint("app:make", tmp_path, make), config).maker(range(3))()
    row = np.zeros(trainer.schema.size, dtype=trainer.schema.dtype)
    trainer.initialise(0, row)
    trainer.update(0, 1, row)
    kept = trainer.state(0)
    trainer.update(0, 2, row)
    assert [value.tolist() for name, value in kept.items() if name != "text"] == [[1.0] * 3]


def test_a_method_begins_with_models_that_no_method_before_has_touched(tmp_path):
    """Also of peers that were never drawn to train, whose models are overwritten by scores."""

    def make(_settings):
        def update(model, _data, _round):
            model["w"] += 1.0

        def evaluate(model, _data):
            return 0, 5 * float(model["w"][0]), 5

        return App(model={"w": np.zeros(3)}, data=np.zeros(5), update=update, evaluate=evaluate)

    settings = {"peers": 60, "peers_per_round": 12, "rounds": 2}
    alone = securedfl.train(make, methods="secured", out=tmp_path / "alone", **settings)
    after = securedfl.train(make, methods="fedavg,secured", out=tmp_path / "after", **settings)
    assert after.methods["secured"].final_loss == alone.methods["secured"].final_loss
    models = [securedfl.load(tmp_path / name, "secured")["w"] for name in ("alone", "after")]
    np.testing.assert_array_equal(*map(np.asarray, models))


class Sparse:
    """As a sparse matrix of scipy: it has a shape and refuses to have a length."""

    shape = (7, 3)

    def __len__(self):
        raise TypeError("sparse array length is ambiguous")


@pytest.mark.parametrize(
    ("data", "size"),
    [
        ([np.zeros((28, 28))] * 10, 10),
        ((np.zeros((20, 2)), np.zeros(20)), 20),
        ({"x": np.zeros((20, 2)), "y": np.zeros(20)}, 20),
        ((Sparse(), np.zeros(7)), 7),
        ([1, 2, 3], 3),
    ],
)
def test_samples_are_counted_not_rows_of_a_sample(data, size):
    assert App(model={"w": np.zeros(1)}, data=data, update=lambda *_: None).size == size


def test_losses_of_peers_without_samples_have_a_mean(tmp_path):
    def make(_settings):
        return App(model={"w": np.zeros(2)}, data={}, update=lambda *_: 0.5)

    securedfl.train(make, peers=3, rounds=1, methods="fedavg", out=tmp_path / "run")


def test_a_run_that_was_killed_before_it_left_its_model_leaves_it_when_it_is_resumed(tmp_path):
    out, again = tmp_path / "run", tmp_path / "again"
    securedfl.train(model="linear", peers=3, rounds=1, methods="local,fedavg", out=out)
    whole = securedfl.load(out, "fedavg").state_dict()
    before = (out / "metrics.jsonl").read_text()
    for file in ("model.safetensors", "summary.json"):
        (out / file).unlink()
    out.rename(again)
    assert securedfl.resume(again).finished
    assert (again / "metrics.jsonl").read_text() == before
    found = securedfl.load(again, "fedavg").state_dict()
    assert all(torch.equal(whole[name], found[name]) for name in whole)
    assert securedfl.resume(again).samples.test
