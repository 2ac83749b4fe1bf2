"""The paper's models: their size, and that the layouts chosen for speed compute what plain PyTorch computes."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from securedfl.errors import ConfigError
from securedfl.learning.models.characters import CharacterGRU
from securedfl.learning.models.flat import FlatModel
from securedfl.learning.models.images import Convolution
from securedfl.learning.models.registry import build
from securedfl.learning.slices import PeerData
from securedfl.learning.training.task import TrainingOptions
from securedfl.learning.training.trainer import LocalTrainer, one_thread


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        torch.manual_seed(0)
        yield


def size(module):
    return sum(p.numel() for p in module.parameters())


def resnet_size(widths, channels, classes):
    """Count by hand: convolutions without bias, two numbers per normalised channel, shortcuts where shapes change."""

    def layer(before, after, side):
        return before * after * side * side + 2 * after

    total, before = layer(channels, widths[0], 3), widths[0]
    for after in widths:
        total += layer(before, after, 3) + 3 * layer(after, after, 3)
        total += layer(before, after, 1) if before != after else 0
        before = after
    return total + before * classes + classes


def test_cnn_has_the_papers_layers():
    model = build("cnn", (1, 28, 28), 10)
    convolutions = (1 * 5 * 5 * 32 + 32) + (32 * 2 * 2 * 64 + 64)
    assert size(model) == convolutions + (5 * 5 * 64 * 512 + 512) + (512 * 10 + 10) == 833_930
    assert model(torch.zeros(3, 1, 28, 28)).shape == (3, 10)


def test_gru_has_the_papers_layers():
    model = build("gru", (50,), 76)
    assert size(model) == 76 * 100 + 3 * 128 * (100 + 128 + 2) + (128 * 76 + 76) == 105_724
    assert model(torch.zeros(3, 50, dtype=torch.long)).shape == (3, 50, 76)


@pytest.mark.parametrize("name", ["resnet18", "resnet18-running"])
def test_resnet18_has_11_2_million_parameters(name):
    assert size(build(name, (3, 32, 32), 10)) == resnet_size((64, 128, 256, 512), 3, 10) == 11_173_962


def test_width_scales_the_layers():
    assert size(build("cnn", (1, 28, 28), 10, 0.25)) == (25 * 8 + 8) + (8 * 4 * 16 + 16) + (400 * 128 + 128) + 1290
    assert size(build("gru", (50,), 76, 0.5)) == 76 * 50 + 3 * 64 * (50 + 64 + 2) + 64 * 76 + 76
    assert size(build("resnet18", (3, 32, 32), 10, 0.125)) == resnet_size((8, 16, 32, 64), 3, 10)
    assert size(build("cnn", (1, 28, 28), 10, 1e-6)) > 0  # never less than one of each


@pytest.mark.parametrize("length", [1, 2, 7])
def test_gru_equals_the_layers_of_pytorch_forward_and_backward(length):
    model = CharacterGRU(11, 5, 6, 9).double()
    x, y = torch.randint(0, 11, (4, length)), torch.randint(0, 9, (4, length))
    scores = model(x)
    plain = model.scores(model.gru(model.embedding(x))[0])
    torch.testing.assert_close(scores, plain, rtol=1e-12, atol=1e-12)

    names, parameters = zip(*model.named_parameters(), strict=True)
    assert len(names) == 7
    losses = (functional.cross_entropy(out.reshape(-1, 9), y.reshape(-1)) for out in (scores, plain))
    ours, theirs = (torch.autograd.grad(loss, parameters) for loss in losses)
    for name, mine, other in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12, msg=name)


def test_gru_passes_gradcheck():
    model = CharacterGRU(4, 2, 3, 2).double()
    x = torch.tensor([[0, 3, 1], [2, 2, 0]])
    names, values = zip(*((n, p.detach().requires_grad_()) for n, p in model.named_parameters()), strict=True)

    def scores(*parameters):
        return torch.func.functional_call(model, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(scores, values)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": 1, "stride": 2, "bias": False},
        {"stride": (2, 3), "groups": 2},
        {"groups": 2},
        {"dilation": 2},
        {"padding": "same"},
    ],
)
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolution_equals_conv2d_forward_and_backward(options, kernel):
    ours = Convolution(4, 6, kernel, **options).double()
    plain = nn.Conv2d(4, 6, kernel, **options).double()
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(5, 4, 9, 8, dtype=torch.double)
    torch.testing.assert_close(ours(x), plain(x), rtol=1e-12, atol=1e-12)
    for module in (ours, plain):
        module(x).square().sum().backward()
    for mine, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-11, atol=1e-11)


def test_cnn_equals_the_textbook_order_of_its_layers():
    ours = build("cnn", (1, 28, 28), 10).double()
    first, second, third, last = (m for m in ours if isinstance(m, nn.Conv2d | nn.Linear))
    x = torch.randn(6, 1, 28, 28, dtype=torch.double)
    hidden = functional.max_pool2d(functional.conv2d(x, first.weight, first.bias).relu(), 2)
    hidden = functional.max_pool2d(functional.conv2d(hidden, second.weight, second.bias).relu(), 2)
    plain = last(third(hidden.flatten(1)).relu())
    torch.testing.assert_close(ours(x), plain, rtol=1e-12, atol=1e-12)


def test_statistics_of_the_batch_leave_no_buffers():
    model = build("resnet18", (3, 32, 32), 10, 0.05)
    assert list(model.buffers()) == []
    x = torch.randn(8, 3, 32, 32)
    model.eval()
    both, half = model(x), model(x[:4])
    assert not torch.allclose(both[:4], half, atol=1e-4)  # also in testing


def test_running_averages_are_in_the_flat_vector_and_so_averaged():
    model = build("resnet18-running", (3, 32, 32), 10, 0.05)
    buffers = sum(b.numel() for b in model.buffers())
    flat = FlatModel(model)
    assert flat.size == size(model) + buffers - 20  # counters stay at home
    names = [leaf.name for leaf in flat.schema.leaves]
    assert sum(name.endswith("running_var") for name in names) == 20
    x = torch.randn(8, 3, 32, 32)
    rows = np.zeros((2, flat.size), np.float32)
    for row, scale in zip(rows, (1, 3), strict=True):
        model.train()
        model(scale * x)
        home = flat.write(row)
    flat.read(rows.mean(axis=0), home)
    model.eval()
    assert torch.equal(model(x)[:4], model(x[:4]))  # testing no longer looks at the batch
    variances = [b for name, b in model.named_buffers() if name == "stem.1.running_var"]
    at = names.index("stem.1.running_var")
    start = sum(leaf.size for leaf in flat.schema.leaves[:at])
    expected = rows[:, start : start + len(variances[0])].mean(axis=0)
    np.testing.assert_array_equal(variances[0].numpy(), expected)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("cnn", (3, 9, 9), "'cnn' needs images of at least 10x10 pixels, not samples of shape"),
        ("cnn", (50,), "'cnn' needs images"),
        ("cnn-small", (1, 3, 8), "at least 4x4"),
        ("resnet18", (3, 8, 8), "'resnet18' needs images of at least 9x9"),
        ("resnet18-running", (3, 32), "'resnet18-running' needs images"),
        ("gru", (1, 28, 28), "'gru' needs sequences of characters, not samples of shape"),
        ("resnet81", (3, 32, 32), "did you mean 'resnet18'"),
    ],
)
def test_wrong_shapes_and_names_are_errors(name, shape, message):
    with pytest.raises(ConfigError, match=message):
        build(name, shape, 10)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("cnn", (1, 10, 11)), ("resnet18", (3, 9, 9)), ("resnet18-running", (1, 9, 12)), ("gru", (1,))],
)
def test_the_smallest_samples_can_be_trained_on_also_in_batches_of_one(name, shape):
    random = np.random.default_rng(0)
    if name == "gru":
        x = y = random.integers(0, 3, (3, *shape))
    else:
        x, y = random.random((3, *shape), dtype=np.float32), np.arange(3)
    options = TrainingOptions(model=name, width=0.05, batch_size=2)
    local = LocalTrainer({0: PeerData(x, y, x[:1], y[:1])}, shape, 3, options)
    row = np.zeros(local.model.size, np.float32)
    local.initialise(0, row)
    assert np.isfinite(local.update(0, 1, row))
    assert local.evaluate(0, row).count == 1


def test_the_shortcut_of_a_narrow_resnet_stays_within_its_memory():
    """oneDNN's own gradient of this layer overwrites its neighbours' memory, in a process that glibc watches."""
    code = (
        "import torch; from securedfl.learning.models.images import Convolution; torch.set_num_threads(1)\n"
        "layer = Convolution(6, 13, 1, stride=2, bias=False)\n"
        "for batch in (2, 5, 32):\n"
        "    for _ in range(30): layer(torch.randn(batch, 6, 32, 32, requires_grad=True)).sum().backward()"
    )
    environment = {**os.environ, "MALLOC_CHECK_": "3"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
