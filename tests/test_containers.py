"""What may be handed over to be averaged: modules, optimisers, PEFT models, dicts, lists, iterators, arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import securedfl
from securedfl.containers import Container
from securedfl.errors import InvalidInputError


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))


class LikePeft(torch.nn.Module):
    """What is recognised of a PEFT model; tests/adapters/libraries has the real ones."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.peft_config = {"default": None}
        self.base = torch.nn.Linear(2, 2).requires_grad_(False)
        self.register_buffer("seen", torch.full((1,), float(seed)))
        self.lora_A = torch.nn.Linear(2, 1, bias=False).requires_grad_(False)
        self.lora_B = torch.nn.Linear(1, 2, bias=False)


def kinds():
    def optimiser(seed, **options):
        module = network(seed)
        return torch.optim.Adam(module.named_parameters() if options else module.parameters())

    return {
        "array": lambda k: np.full((2, 3), float(k)),
        "tensor": lambda k: torch.full((2, 3), float(k)),
        "dict of arrays": lambda k: {"a": np.full(3, float(k)), "b": np.full((2, 2), 2.0 * k)},
        "state dict": lambda k: network(k).state_dict(),
        "module": network,
        "list of arrays": lambda k: [np.full(3, float(k)), np.full((2, 2), 2.0 * k)],
        "list of tensors": lambda k: [torch.full((3,), float(k)), torch.full((2,), 2.0 * k)],
        "tuple": lambda k: (np.full(3, float(k)), np.full((2, 2), 2.0 * k)),
        "parameters": lambda k: list(network(k).parameters()),
        "named parameters": lambda k: list(network(k).named_parameters()),
        "optimiser": optimiser,
        "optimiser with names": lambda k: optimiser(k, names=True),
        "parameter groups": lambda k: optimiser(k).param_groups,
        "like PEFT": LikePeft,
    }


@pytest.mark.parametrize("make", kinds().values(), ids=kinds())
def test_whatever_holds_parameters_is_averaged_and_changed_in_place(make):
    models = [make(k) for k in range(9)]
    opened = [Container.of(model) for model in models]
    schema = opened[0].schema()
    expected = np.mean([one.flatten(schema).astype(np.float64) for one in opened], axis=0)
    returned = Container.of(securedfl.average(models))
    np.testing.assert_allclose(returned.flatten(returned.schema()), expected, atol=1e-5)
    untouched = Container.of(make(8))
    np.testing.assert_array_equal(opened[8].flatten(schema), untouched.flatten(schema))

    assert securedfl.average_(models)[3] is models[3]
    for model in models:
        np.testing.assert_allclose(Container.of(model).flatten(schema), expected, atol=1e-5)


def test_generators_of_parameters_will_do():
    models = [network(k) for k in range(9)]
    mean = securedfl.average([model.parameters() for model in models], protocol="plain")
    assert isinstance(mean, list)
    securedfl.average_([model.parameters() for model in models], protocol="plain")
    for got, want in zip(models[4].parameters(), mean, strict=True):
        torch.testing.assert_close(got.detach(), want)


def test_a_module_keeps_what_is_frozen_and_trains_on():
    models = [network(k) for k in range(9)]
    for model in models:
        model[0].weight.requires_grad_(False)
    before = models[2][0].weight.clone()
    mean = securedfl.average(models)
    assert list(mean) == list(models[0].state_dict())
    securedfl.average_(models)
    assert torch.equal(models[2][0].weight, before)
    torch.testing.assert_close(models[2][2].weight.detach(), mean["2.weight"])
    models[2](torch.ones(4, 2)).sum().backward()
    assert models[2][2].weight.grad is not None


def test_the_state_of_an_optimiser_stays_at_the_site():
    optimisers = []
    for k in range(9):
        module = network(k)
        optimisers.append(torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9))
        module(torch.full((4, 2), float(k + 1))).sum().backward()
        optimisers[-1].step()
    before = [one.state_dict()["state"][4]["momentum_buffer"].clone() for one in optimisers]
    securedfl.average_(optimisers)
    for one, momentum in zip(optimisers, before, strict=True):
        assert torch.equal(one.state_dict()["state"][4]["momentum_buffer"], momentum)
    weights = [one.param_groups[0]["params"][0] for one in optimisers]
    assert all(torch.equal(weights[0], weight) for weight in weights)


def test_of_an_adapter_nothing_else_leaves():
    models = [LikePeft(k) for k in range(9)]
    assert [leaf.name for leaf in Container.of(models[0]).schema().leaves] == ["lora_B.weight"]
    assert list(securedfl.average(models)) == ["lora_B.weight"]
    securedfl.average_(models)
    assert [float(model.seen) for model in models] == list(range(9))
    assert not torch.equal(models[0].base.weight, models[1].base.weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_in_place(dtype):
    models = [network(k).to(dtype) for k in range(9)]
    want = torch.stack([model[2].weight.detach().double() for model in models]).mean(0)
    securedfl.average_(models)
    assert models[0][2].weight.dtype == dtype
    torch.testing.assert_close(models[5][2].weight.detach().double(), want, rtol=torch.finfo(dtype).eps, atol=1e-6)


def frozen_adapter():
    model = LikePeft(0)
    model.lora_B.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: iter(()), "no parameters to average"),
        (lambda: iter([1.0, 2.0]), r"pass model\.parameters\(\)"),
        (dict, "no parameters to average"),
        (lambda: network(0).requires_grad_(False).parameters(), "unfreeze some"),
        (frozen_adapter, "is_trainable=True"),
        (lambda: [1.0, 2.0], "cannot be changed in place"),
        (lambda: np.broadcast_to(np.ones(1), 3), "read-only"),
        (lambda: {"a": np.broadcast_to(np.ones(1), 3)}, "'a' is read-only"),
        (lambda: "text", "only real numbers"),
    ],
)
def test_what_cannot_be_averaged_in_place_is_an_error_that_says_what_to_do(make, message):
    with pytest.raises(InvalidInputError, match=message):
        securedfl.average_([make() for _ in range(9)])


def test_peers_whose_shapes_differ_are_named():
    models = [torch.nn.Linear(2, 3) for _ in range(8)] + [torch.nn.Linear(2, 4)]
    with pytest.raises(InvalidInputError, match=r"peer 8 has float32\[4, 2\] where peer 0 has float32\[3, 2\]"):
        securedfl.average_(models)
