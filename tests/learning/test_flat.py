"""What of a module lies in a flat row, and what is kept at home: local, frozen and tied parameters, counters."""

import numpy as np
import pytest
import torch
from torch import nn

from securedfl.errors import InvalidInputError
from securedfl.learning.models.flat import FlatModel
from securedfl.learning.models.registry import build
from securedfl.learning.slices import PeerData
from securedfl.learning.training.task import TrainingOptions
from securedfl.learning.training.trainer import LocalTrainer, one_thread
from tests.learning.plugin import install


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def names(flat):
    return [leaf.name for leaf in flat.schema.leaves]


def written(flat):
    row = np.zeros(flat.size, np.float32)
    return row, flat.write(row)


class Tied(nn.Module):
    """An embedding whose matrix also gives the scores."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.middle = nn.Linear(3, 3)
        self.scores = nn.Linear(3, 5, bias=False)
        self.scores.weight = self.embedding.weight

    def forward(self, x):
        return self.scores(self.middle(self.embedding(x)))


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        ("cnn-small", (1, 8, 8), "47f8bf3af450c12d"),
        ("gru", (50,), "78bf72a3861f7e2c"),
        ("resnet18", (3, 32, 32), "74c4fae562647a9a"),
    ],
)
def test_models_without_home_have_the_hash_of_earlier_versions(model, shape, expected):
    assert FlatModel(build(model, shape, 10, 0.1)).schema.hash == expected


def test_each_peer_keeps_its_own_counters():
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    flat = FlatModel(module)
    assert names(flat) == ["0.weight", "0.bias", "1.weight", "1.bias", "0.running_mean", "0.running_var"]
    module(torch.randn(8, 3))
    row, home = written(flat)
    assert home == {"0.num_batches_tracked": 1}
    module(torch.randn(8, 3))
    flat.read(row, home)
    assert module[0].num_batches_tracked.item() == 1
    assert home["0.num_batches_tracked"].dtype == np.int64


def test_what_is_local_is_trained_by_the_same_optimiser_but_not_in_the_row():
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    flat = FlatModel(module, local=["1.*"])
    assert names(flat) == ["0.weight", "0.bias"]
    assert flat.trained.numel() == 9 + 4
    row, home = written(flat)
    np.testing.assert_array_equal(row[:6], module[0].weight.detach().reshape(-1))
    np.testing.assert_array_equal(home["1.weight"], module[1].weight.detach())

    before = [parameter.detach().clone() for parameter in module.parameters()]
    module(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD([flat.trained], lr=0.1).step()
    assert module[1].bias.grad.tolist() == [1]
    assert all(not torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True))
    flat.read(row, home)
    for old, new in zip(before, module.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), old, rtol=0, atol=0)


def test_frozen_parameters_stay_at_home():
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    module[0].requires_grad_(False)
    flat = FlatModel(module)
    assert names(flat) == ["1.weight", "1.bias"]
    _, home = written(flat)
    assert home.keys() == {"0.weight", "0.bias"}
    module.requires_grad_(False)
    with pytest.raises(InvalidInputError, match="nothing is left to average"):
        FlatModel(module)


def test_tied_weights_are_once_in_the_row_and_stay_tied():
    module = Tied()
    flat = FlatModel(module)
    assert names(flat) == ["embedding.weight", "middle.weight", "middle.bias"]
    assert flat.size == 15 + 9 + 3
    row, home = written(flat)
    assert home == {}
    row[:15] = 7
    flat.read(row, home)
    assert module.scores.weight is module.embedding.weight
    assert set(module.scores.weight.reshape(-1).tolist()) == {7}


def test_two_parameters_that_share_memory_still_do():
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight.data = module[0].weight.data
    flat = FlatModel(module)
    assert names(flat) == ["0.weight"]
    assert module[1].weight.data_ptr() == module[0].weight.data_ptr()
    module(torch.ones(1, 2)).sum().backward()
    assert torch.equal(module[0].weight.grad, module[1].weight.grad)


def test_a_tied_weight_that_is_local_under_one_name_does_not_leave_under_the_other():
    flat = FlatModel(Tied(), local=["scores.*"])
    assert names(flat) == ["middle.weight", "middle.bias"]
    assert written(flat)[1].keys() == {"embedding.weight", "scores.weight"}
    assert flat.trained.numel() == 15 + 12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floats_travel_as_float32_and_are_rounded_once(dtype):
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(dtype)
    flat = FlatModel(module, local=["0.bias"])
    row, home = written(flat)
    assert row.dtype == np.float32
    value = np.float32(1.00390625 + 2**-20)  # just above the middle of two neighbours of bfloat16
    flat.read(np.full_like(row, value), home)
    assert module[0].weight.dtype == module[1].running_mean.dtype == dtype
    assert module[0].weight[0, 0].item() == torch.tensor(value).to(dtype).item()
    assert module[0].bias.dtype == dtype
    np.testing.assert_array_equal(home["0.bias"], module[0].bias.detach().float())


def test_parameters_of_two_dtypes_cannot_be_trained_as_one():
    with pytest.raises(InvalidInputError, match=r"torch.bfloat16, torch.float32; convert it"):
        FlatModel(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).bfloat16()))


def test_buffers_of_another_dtype_are_copied():
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    module[0].running_mean = module[0].running_mean.double()
    flat = FlatModel(module)
    assert names(flat)[-2:] == ["0.running_var", "0.running_mean"]
    flat.read(np.arange(flat.size, dtype=np.float32), {"0.num_batches_tracked": np.array(3)})
    assert module[0].running_mean.tolist() == [flat.size - 2, flat.size - 1]
    row, _ = written(flat)
    np.testing.assert_array_equal(row, np.arange(flat.size))


HALF = """
from torch import nn

class Half(nn.Module):
    def __init__(self, size, classes):
        super().__init__()
        self.layer = nn.Linear(size, classes).bfloat16()

    def forward(self, x):
        return self.layer(x.flatten(1).bfloat16()).float()

def half(shape, classes, width):
    return Half(shape[0], classes)
"""


def test_a_bfloat16_model_learns_and_goes_on_after_a_restart(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, HALF, models={"half": "half"})
    x = np.eye(4, dtype=np.float32).repeat(10, axis=0)
    data = {0: PeerData(x, x.argmax(1), x, x.argmax(1))}
    options = TrainingOptions(model="half", optimizer="adam", learning_rate=0.1, local=("*.bias",))
    one, two = (LocalTrainer(data, (4,), 4, options) for _ in range(2))
    row = np.zeros(one.model.size, np.float32)
    one.initialise(0, row)
    for r in range(1, 6):
        one.update(0, r, row)
    assert one.evaluate(0, row).correct == 40
    assert np.array_equal(row, torch.from_numpy(row).bfloat16().float())

    again = row.copy()
    two.restore(0, one.state(0))
    for trainer, own in ((one, row), (two, again)):
        trainer.update(0, 6, own)
    np.testing.assert_array_equal(again, row)
    np.testing.assert_equal(two.state(0), one.state(0))
