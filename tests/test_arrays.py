"""Tensors on their way to a flat vector and back. No GPU is here: stand-ins record which calls are made."""

import numpy as np
import pytest
import torch

from securedfl.parameters import Schema


class OnCuda(torch.Tensor):
    """A tensor in this machine's memory that says it is on a GPU, and refuses detours."""

    @property
    def device(self):
        return torch.device("cuda", 0)

    def cpu(self):
        raise AssertionError("a whole copy through pageable memory")

    def double(self):
        raise AssertionError("a detour through float64")


OnCuda.__module__ = "torch.stand_in"


@pytest.fixture
def pinned(monkeypatch):
    """Record every vector that was asked for in pinned memory, which only machines with a GPU have."""
    asked, empty = [], torch.empty

    def recorded(*shape, pin_memory=False, **options):
        if pin_memory:
            asked.append(options["dtype"])
        return empty(*shape, **options)

    monkeypatch.setattr(torch, "empty", recorded)
    return asked


def on_cuda(values, dtype):
    return torch.tensor(values, dtype=dtype).as_subclass(OnCuda)


def test_tensors_on_a_gpu_go_straight_into_one_pinned_vector(pinned):
    tree = {"a": on_cuda([[1.5, 2.5]], torch.float32), "b": on_cuda([0.5, -1.0, 3.0], torch.bfloat16)}
    vector = Schema.of(tree).flatten(tree)
    np.testing.assert_array_equal(vector, np.array([1.5, 2.5, 0.5, -1.0, 3.0], np.float32))
    assert vector.dtype == np.float32
    assert pinned == [torch.float32]


def test_one_tensor_on_a_gpu_takes_the_same_way(pinned):
    tensor = on_cuda([1.0, 2.0], torch.float32)
    np.testing.assert_array_equal(Schema.of(tensor).flatten(tensor), np.array([1, 2], np.float32))
    assert pinned == [torch.float32]


def test_the_way_back_is_through_pinned_memory_in_the_dtype_of_the_vector(pinned, monkeypatch):
    moved, to = [], torch.Tensor.to

    def recorded(tensor, *, dtype, device):
        moved.append((tensor.dtype, dtype, str(device)))
        return to(tensor, dtype=dtype)

    monkeypatch.setattr(torch.Tensor, "to", recorded)
    tree = {"a": on_cuda([0.0, 0.0], torch.bfloat16), "b": torch.zeros(1)}
    vector = np.array([1.5, -2.0, 3.0], np.float32)
    vector.flags.writeable = False
    back = Schema.of(tree).unflatten(vector, tree)
    assert back["a"].tolist() == [1.5, -2.0]
    assert back["a"].dtype == torch.bfloat16
    assert back["b"].tolist() == [3.0]
    assert pinned == [torch.float32]
    assert moved == [(torch.float32, torch.bfloat16, "cuda:0"), (torch.float32, torch.float32, "cpu")]


def test_what_is_given_back_is_a_copy():
    vector, like = np.array([1.0, 2.0], np.float32), torch.zeros(2)
    back = Schema.of(like).unflatten(vector, like)
    vector[0] = 9
    assert back.tolist() == [1.0, 2.0]
