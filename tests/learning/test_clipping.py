"""Clipped sums of gradients: as one sample at a time, as Opacus, and never longer than the clip."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from securedfl.errors import ConfigError
from securedfl.learning.models.flat import FlatModel
from securedfl.learning.models.registry import build
from securedfl.learning.training.clipping import BLOCK, PIECE, WRITTEN, ClippedGradients, check_per_sample

CASES = [("cnn", (1, 12, 12), 7, 0.1), ("cnn-small", (1, 8, 8), 10, 0.25), ("linear", (1, 8, 8), 10, 1.0)]


def losses(scores, labels):
    return nn.functional.cross_entropy(scores, labels, reduction="none")


def sample(shape, classes, count=9):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, *shape, generator=generator)
    return x, torch.randint(classes, (count,), generator=generator)


def by_hand(module, x, y, clip):
    """The sum of clipped gradients, one backward pass per sample."""
    total = None
    for k in range(len(x)):
        gradients = torch.autograd.grad(losses(module(x[k : k + 1]), y[k : k + 1]).sum(), list(module.parameters()))
        flat = torch.cat([g.reshape(-1) for g in gradients])
        flat = flat * min(1.0, clip / float(flat.norm()))
        total = flat if total is None else total + flat
    return total


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.mark.parametrize(("name", "shape", "classes", "width"), CASES)
@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_as_one_sample_at_a_time(name, shape, classes, width, clip):
    model = FlatModel(build(name, shape, classes, width))
    x, y = sample(shape, classes)
    clipped = ClippedGradients(model, losses)
    clipped.add(x, y, clip)
    assert clipped._layers is not None, "every layer of our models is known"
    expected = by_hand(model.module, x, y, clip)
    torch.testing.assert_close(model.gradient, expected, rtol=1e-4, atol=1e-6)
    clipped._layers = None
    clipped.add(x, y, clip)
    torch.testing.assert_close(model.gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_as_opacus():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule

        x, y = sample((1, 8, 8), 10)
        model = FlatModel(build("cnn-small", (1, 8, 8), 10, 0.25))
        ClippedGradients(model, losses).add(x, y, 0.5)
        wrapped = GradSampleModule(model.module)
        wrapped.zero_grad()
        losses(wrapped(x), y).sum().backward()
    each = [p.grad_sample for p in wrapped.parameters()]
    norms = torch.stack([g.flatten(1).square().sum(1) for g in each]).sum(0).sqrt()
    factors = (0.5 / norms).clamp(max=1.0)
    theirs = torch.cat([torch.einsum("b,b...->...", factors, g).reshape(-1) for g in each])
    fresh = FlatModel(build("cnn-small", (1, 8, 8), 10, 0.25))
    with torch.no_grad():
        fresh.trained.copy_(model.trained)
    ClippedGradients(fresh, losses).add(x, y, 0.5)
    torch.testing.assert_close(fresh.gradient, theirs, rtol=1e-4, atol=1e-6)


def test_one_record_never_adds_more_than_the_clip():
    model = FlatModel(build("cnn-small", (1, 8, 8), 10, 0.25))
    x, y = sample((1, 8, 8), 10, 70)
    clipped = ClippedGradients(model, losses)
    clipped.add(x, y, 0.3)
    whole = model.gradient.clone()
    for k in (0, 33, 69):
        keep = torch.arange(70) != k
        clipped.add(x[keep], y[keep], 0.3)
        assert float((whole - model.gradient).norm()) <= 0.3 * (1 + 1e-4)


def test_as_vmap_over_several_pieces():
    """More samples than one piece, and layers with more numbers than are added in float32."""
    from torch.func import functional_call, grad, vmap

    module = build("cnn-small", (1, 8, 8), 10)
    model = FlatModel(module)
    parameters = {name: p.detach().clone() for name, p in module.named_parameters()}
    x, y = sample((1, 8, 8), 10, PIECE + 9)
    each = vmap(
        grad(lambda w, one, label: losses(functional_call(module, w, one[None]), label[None]).sum()), (None, 0, 0)
    )(parameters, x, y)
    norms = torch.stack([g.flatten(1).double().square().sum(1) for g in each.values()]).sum(0).sqrt()
    clip = float(norms.median())  # half of them are cut
    factors = (clip / norms).clamp(max=1.0).float()
    expected = torch.cat([torch.einsum("b,b...->...", factors, g).reshape(-1) for g in each.values()])
    assert max(p.numel() for p in parameters.values()) > BLOCK
    ClippedGradients(model, losses).add(x, y, clip)
    torch.testing.assert_close(model.gradient, expected, rtol=1e-4, atol=1e-5)


def test_wide_layers_take_fewer_samples_at_a_time():
    narrow, wide = (nn.Sequential(nn.Conv2d(w, w, 3), nn.Flatten(), nn.Linear(4 * w, 2)) for w in (4, 160))
    assert ClippedGradients(FlatModel(narrow), losses)._piece == PIECE
    assert ClippedGradients(FlatModel(wide), losses)._piece == WRITTEN // (160 * 160 * 9)


def test_no_record_is_no_gradient():
    model = FlatModel(build("linear", (1, 8, 8), 10))
    x, y = sample((1, 8, 8), 10)
    assert float(ClippedGradients(model, losses).add(x[:0], y[:0], 1.0)) == 0
    assert not model.gradient.any()


class Twice(nn.Module):
    """Calls the same layer two times, so that its gradient is a sum of two products."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.inner(torch.relu(self.inner(x))))


def test_layers_that_are_called_twice_go_one_by_one():
    model = FlatModel(Twice())
    x, y = sample((4,), 3)
    ClippedGradients(model, losses).add(x, y, 0.2)
    torch.testing.assert_close(model.gradient, by_hand(model.module, x, y, 0.2), rtol=1e-4, atol=1e-6)


def test_text_goes_one_by_one():
    model = FlatModel(build("gru", (6,), 11, 0.1))
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randint(11, (5, 6), generator=generator) for _ in range(2))

    def by_sequence(scores, labels):
        flat = nn.functional.cross_entropy(scores.reshape(-1, 11), labels.reshape(-1), reduction="none")
        return flat.view(len(labels), -1).mean(1)

    total = ClippedGradients(model, by_sequence).add(x, y, 1e-3)
    assert float(total) > 0
    assert 0 < float(model.gradient.norm()) <= 5e-3 * (1 + 1e-4)


@pytest.mark.parametrize("name", ["resnet18", "resnet18-running"])
def test_batch_normalisation_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=rf"'{name}' has batch normalisation \(layer 'stem.1'\).*GroupNorm"):
        check_per_sample(FlatModel(build(name, (3, 9, 9), 10, 0.05)), name)


def test_models_without_it_pass():
    for name, shape, classes, width in CASES:
        check_per_sample(FlatModel(build(name, shape, classes, width)), name)


@pytest.mark.parametrize("together", [True, False])
def test_a_record_without_a_finite_gradient_adds_nothing(together):
    """Else one record could make a whole site's sum useless, which is more than the clip."""
    model = FlatModel(build("linear", (1, 8, 8), 10))
    x, y = sample((1, 8, 8), 10)
    expected = by_hand(model.module, x[1:], y[1:], 1.0)
    x[0] = torch.inf
    clipped = ClippedGradients(model, losses)
    if not together:
        clipped._layers = None
    clipped.add(x, y, 1.0)
    torch.testing.assert_close(model.gradient, expected, rtol=1e-4, atol=1e-6)
    clipped.add(x[:1], y[:1], 1.0)
    assert not model.gradient.any()


def test_dropout_is_refused():
    model = FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5), nn.Linear(8, 2)))
    with pytest.raises(ConfigError, match="dropout"):
        check_per_sample(model, "mine")


class Folded(nn.Module):
    """Positions are samples to its layer: a record would be clipped position by position."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.inner, self.first = nn.Linear(4, 3), first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first:
            return self.inner(x.transpose(0, 1)).sum(0)
        return self.inner(x.reshape(-1, 4)).reshape(len(x), -1, 3).sum(1)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (lambda: Folded(first=True), (9, 4)),
        (lambda: Folded(first=False), (9, 4)),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)), (4,)),
    ],
)
def test_models_whose_layers_do_not_see_samples_go_one_by_one(module, shape):
    """With nine positions and nine records, sizes alone tell nothing."""
    torch.manual_seed(1)
    model = FlatModel(module())
    x, y = sample(shape, 3)
    ClippedGradients(model, losses).add(x, y, 0.05)
    torch.testing.assert_close(model.gradient, by_hand(model.module, x, y, 0.05), rtol=1e-4, atol=1e-6)
