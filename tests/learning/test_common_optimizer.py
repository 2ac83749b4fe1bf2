"""Optimisers of the common model: against PyTorch, against the paper's formulas written out, and bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from securedfl.learning.training.common_optimizer import CommonOptimizer, buffers_of
from securedfl.parameters import Schema

KINDS = ["momentum", "nesterov", "adam", "yogi"]


def averages(rounds=6, size=5, dtype=np.float64):
    random = np.random.default_rng(0)
    return [random.normal(size=size).astype(dtype) for _ in range(rounds)]


def walk(optimizer, changes):
    """Return the models after each of the changes that averages make."""
    held, models = None, []
    for change in changes:
        average = change if held is None else optimizer.model(held) + change
        held = optimizer.step(held, average)
        models.append(optimizer.model(held).copy())
    return models


@pytest.mark.parametrize("kind", ["momentum", "nesterov"])
def test_momentum_is_that_of_pytorchs_sgd_with_the_change_as_gradient(kind):
    changes = averages()
    found = walk(CommonOptimizer(kind=kind, learning_rate=0.7, momentum=0.9), changes)
    w = nn.Parameter(torch.from_numpy(changes[0].copy()))
    steps = torch.optim.SGD([w], lr=0.7, momentum=0.9, nesterov=kind == "nesterov")
    for model, change in zip(found[1:], changes[1:], strict=True):
        w.grad = -torch.from_numpy(change)
        steps.step()
        np.testing.assert_allclose(model, w.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("kind", ["adam", "yogi"])
def test_adam_and_yogi_are_those_of_adaptive_federated_optimization(kind):
    """Algorithm 2 of Reddi et al., element by element."""
    eta, beta_1, beta_2, tau = 0.1, 0.9, 0.99, 0.01
    changes = averages()
    found = walk(CommonOptimizer(kind=kind, learning_rate=eta, momentum=beta_1, adaptivity=tau), changes)
    for i in range(len(changes[0])):
        x, m, v = changes[0][i], 0.0, tau**2
        for model, change in zip(found[1:], changes[1:], strict=True):
            delta = change[i]
            m = beta_1 * m + (1 - beta_1) * delta
            if kind == "adam":
                v = beta_2 * v + (1 - beta_2) * delta**2
            else:
                v = v - (1 - beta_2) * delta**2 * np.sign(v - delta**2)
            x = x + eta * m / (np.sqrt(v) + tau)
            assert model[i] == pytest.approx(x, rel=1e-9)


def test_without_one_the_average_is_the_model():
    average = averages()[0]
    assert CommonOptimizer().step(average * 2, average) is average
    assert CommonOptimizer().size(7) == 7


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_average_is_taken_as_it_is(kind):
    first = averages(dtype=np.float32)[0]
    optimizer = CommonOptimizer(kind=kind)
    held = optimizer.step(None, first)
    assert held.dtype == np.float32
    assert len(held) == optimizer.size(len(first))
    assert np.array_equal(optimizer.model(held), first)


@given(kind=st.sampled_from(KINDS), at=st.integers(1, 5), seed=st.integers(0, 99))
def test_what_peers_hold_is_all_that_counts(kind, at, seed):
    """Whoever gets the bytes of it in any round goes on with the same bits."""
    random = np.random.default_rng(seed)
    optimizer, held = CommonOptimizer(kind=kind, learning_rate=0.3), None
    steps = [random.normal(size=4).astype(np.float32) for _ in range(6)]
    for round, average in enumerate(steps):
        if round == at:
            held = np.frombuffer(held.tobytes(), dtype=np.float32)
            fetched = held
        held = optimizer.step(held, average)
    again = fetched
    for average in steps[at:]:
        again = CommonOptimizer(kind=kind, learning_rate=0.3).step(again, average)
    assert again.tobytes() == held.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_running_averages_are_averaged_and_nothing_else(kind):
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    tree = module.state_dict()
    schema = Schema.of(tree, integers="average")
    buffers = buffers_of(schema, module)
    assert sum(part.stop - part.start for part in buffers) == 3 + 3 + 1
    optimizer = CommonOptimizer(kind=kind, learning_rate=5.0, buffers=buffers)
    first, second = (np.abs(v) for v in averages(2, schema.size, np.float32))
    model = optimizer.model(optimizer.step(optimizer.step(None, first), second))
    plain = np.zeros(schema.size, dtype=bool)
    for part in buffers:
        plain[part] = True
    assert np.array_equal(model[plain], second[plain])
    assert (model[~plain] != second[~plain]).all()
