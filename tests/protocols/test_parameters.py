"""Structured parameters: flat vectors and back, and schemas that are compared."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import securedfl
from securedfl.containers import Container, flatten_all
from securedfl.designs import best
from securedfl.errors import DesignError, InvalidInputError
from securedfl.parameters import Schema
from securedfl.protocols import by_name, grouped
from securedfl.simulation import run

dtypes = st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.int8, np.uint8, np.bool_])


def model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Linear(4, 2))
    layers[1].num_batches_tracked += 10 * seed
    return layers


@given(st.data(), st.dictionaries(st.text(max_size=5), dtypes, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_dict_of_arrays_survives_flattening(data, kinds):
    tree = {}
    for name, dtype in kinds.items():
        elements = st.integers(0, 1) if dtype == np.bool_ else st.integers(0, 100)
        tree[name] = data.draw(arrays(dtype, array_shapes(min_dims=0, max_dims=3, max_side=3), elements=elements))
    schema = Schema.of(tree, integers="average")
    vector = schema.flatten(tree)
    assert vector.dtype == schema.dtype
    assert vector.shape == (schema.size,)
    back = schema.unflatten(vector, tree)
    assert list(back) == list(tree)
    for name, array in tree.items():
        assert isinstance(back[name], np.ndarray)
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_a_flat_vector_is_not_copied():
    vector = np.arange(5, dtype=np.float32)
    assert Schema.of(vector).flatten(vector).base is vector or Schema.of(vector).flatten(vector) is vector


def test_state_dicts_average_with_integer_buffers_and_keep_their_types():
    states = [model(seed).state_dict() for seed in range(9)]
    mean = securedfl.average(states, integers="average")
    assert list(mean) == list(states[0])
    for name, tensor in mean.items():
        assert tensor.dtype == states[0][name].dtype
        expected = torch.stack([state[name].double() for state in states]).mean(0)
        torch.testing.assert_close(tensor.double(), expected, rtol=0, atol=1e-5)
    assert mean["1.num_batches_tracked"].item() == 40
    model(0).load_state_dict(mean)


def test_counters_are_not_averaged_unless_asked_for():
    states = [model(seed).state_dict() for seed in range(1, 10)]
    mean = securedfl.average(states)
    assert mean["1.num_batches_tracked"].item() == 10
    assert not any(leaf.integer for leaf in Schema.of(states[0]).leaves)
    for protocol in ("shares", "grouped"):
        # 2**40 is far beyond what any vector here could carry
        states[4]["1.num_batches_tracked"] += 2**40
        got = securedfl.average(states, protocol=protocol)
        torch.testing.assert_close(got["1.running_var"], mean["1.running_var"])
    flags = [{"mask": np.array([True, False]), "w": np.full(2, float(k))} for k in range(9)]
    assert securedfl.average(flags)["mask"].tolist() == [True, False]


def test_nothing_but_whole_numbers_is_averaged():
    assert securedfl.average([np.array([k, 10 * k]) for k in range(9)]).tolist() == [4, 40]
    counts = [{"a": np.array([k]), "b": np.array([-k])} for k in range(9)]
    assert securedfl.average(counts)["b"].tolist() == [-4]
    assert securedfl.average(counts, local=["b"]) == {"a": [4], "b": [0]}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_averages_in_float32_and_is_rounded_once(dtype):
    torch.manual_seed(0)
    trees = [{"a": torch.randn(1000).to(dtype), "b": torch.full((2,), 3.0)} for _ in range(9)]
    schema = Schema.of(trees[0])
    assert schema.dtype == "float32"
    mean = securedfl.average(trees, protocol="plain")
    assert mean["a"].dtype == dtype
    exact = torch.stack([tree["a"].float() for tree in trees]).double().mean(0)
    # one rounding: no neighbour is nearer, but for the rounding of float32
    spacing = torch.finfo(dtype).eps * torch.exp2(torch.floor(torch.log2(exact.abs())))
    assert ((mean["a"].double() - exact).abs() <= 0.5001 * spacing + 1e-6).all()
    vector = schema.flatten(trees[0])
    assert torch.equal(schema.unflatten(vector, trees[0])["a"], trees[0]["a"])


def test_patterns_keep_parameters_at_home_where_shapes_may_differ():
    trees = [
        {"body.w": np.full(3, float(k)), "head.w": np.full(k + 1, float(k)), "head.b": np.full(1, float(k))}
        for k in range(9)
    ]
    mean = securedfl.average(trees, local=["head.*"])
    np.testing.assert_allclose(mean["body.w"], 4, atol=1e-9)
    assert list(mean) == list(trees[0])
    assert (mean["head.w"].tolist(), mean["head.b"].tolist()) == ([0], [0])
    np.testing.assert_allclose(securedfl.average(trees, local="head.w")["head.b"], 4, atol=1e-9)
    schemas = [Schema.of(tree, local=["head.*"]) for tree in trees]
    assert len({schema.hash for schema in schemas}) == 1
    assert schemas[0].hash == Schema.of({"body.w": np.zeros(3)}).hash
    assert list(schemas[0].at_home(trees[0])) == ["head.w", "head.b"]


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_tied_weights_travel_once_and_both_names_get_the_value(kind):
    trees = []
    for k in range(9):
        shared = torch.full((2, 3), float(k)) if kind == "torch" else np.full((2, 3), float(k))
        trees.append({"in": shared, "middle": shared[0] + 1, "out": shared})
    schema = Schema.of(trees[0])
    assert [leaf.name for leaf in schema.leaves] == ["in", "middle"]
    assert schema.size == 9
    mean = securedfl.average(trees)
    assert list(mean) == ["in", "middle", "out"]
    assert mean["out"] is mean["in"]
    np.testing.assert_allclose(mean["out"], 4, atol=1e-5)
    # a view of a part, or the transpose, is another array
    views = {"whole": trees[0]["in"], "row": trees[0]["in"][0], "turned": trees[0]["in"].T}
    assert len(Schema.of(views).leaves) == 3
    with pytest.raises(InvalidInputError, match="nothing is left"):
        Schema.of({"in": shared, "out": shared}, local=["out"])


def test_empty_arrays_are_not_tied():
    tree = {"a": torch.zeros(0), "b": torch.zeros(0), "c": torch.zeros(1)}
    assert [leaf.name for leaf in Schema.of(tree).leaves] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"a": np.zeros((2, 3), np.float32), "b": np.zeros(1)}, "1e0803c4045b02c2"),
        (np.zeros(5), "ab2133f89786b327"),
        (np.zeros(5, np.int64), "7f51f95828cfadd4"),
        ({"h": torch.zeros(2).bfloat16(), "g": torch.zeros(3).half()}, "7c2e376a59554c98"),
    ],
)
def test_schemas_without_home_have_the_hash_of_earlier_versions(tree, expected):
    """Sites of a running federation keep it in identity.json."""
    assert Schema.of(tree).hash == expected


def test_weights_count_and_weight_zero_does_not():
    vectors = [np.full(3, float(k)) for k in range(9)]
    weights = [0, 1, 2, 3, 4, 5, 6, 7, 8]
    got = securedfl.average(vectors, weights=weights)
    np.testing.assert_allclose(got, np.average(range(9), weights=weights), atol=1e-12)
    np.testing.assert_allclose(securedfl.average(vectors, weights=weights, max_weight=1000), got, atol=1e-10)
    np.testing.assert_allclose(securedfl.average(vectors, weights=weights, protocol="plain"), got, atol=1e-12)


def test_weighted_averages_of_16_bits_are_as_fine_as_others():
    vectors, weights = [np.full(1, 0.02 * k) for k in range(9)], range(1, 10)
    # nine values up to a quarter in 16 bits: steps of 2^-13
    for factor, step in ((1, 2.0**-13), (20, 2.0**-9)):
        got = securedfl.average([factor * v for v in vectors], weights=weights, protocol="shares", bits=16)
        assert abs(got[0] - factor * np.average(np.ravel(vectors), weights=weights)) < step


def test_schema_hash_depends_on_names_order_shapes_and_dtypes():
    base = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(1, np.float32)}
    variants = [
        base,
        {"a": base["a"], "c": base["b"]},
        OrderedDict(reversed(base.items())),
        {"a": base["a"].T, "b": base["b"]},
        {"a": base["a"].astype(np.float16), "b": base["b"]},
        {"a": base["a"].astype(np.float64), "b": base["b"]},
    ]
    assert len({Schema.of(tree).hash for tree in variants}) == len(variants)
    assert Schema.of({name: torch.from_numpy(array) for name, array in base.items()}).hash == Schema.of(base).hash


def test_rows_of_an_array_and_generators_are_peers():
    rows = np.arange(27.0).reshape(9, 3)
    expected = rows.mean(axis=0)
    np.testing.assert_allclose(securedfl.average(rows), expected, atol=1e-12)
    np.testing.assert_allclose(securedfl.average(row for row in rows), expected, atol=1e-12)
    torch.testing.assert_close(securedfl.average(torch.from_numpy(rows)), torch.from_numpy(expected))
    weights = torch.arange(9)
    got = securedfl.average(rows, weights=weights)
    np.testing.assert_allclose(got, np.average(rows, axis=0, weights=weights.numpy()), atol=1e-12)


@pytest.mark.parametrize("dtype", [">f8", ">f4", "<f8", ">i4"])
def test_byte_order_does_not_change_the_average(dtype):
    got = securedfl.average([np.full(3, 2.0, dtype=dtype) for _ in range(9)])
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_allclose(got, 2.0, atol=1e-5)
    mixed = [np.full(3, 0.3, dtype=">f8" if k % 2 else "<f8") for k in range(9)]
    np.testing.assert_allclose(securedfl.average(mixed), 0.3, atol=1e-12)


def test_keys_come_back_as_they_were():
    assert list(securedfl.average([{1: np.ones(1), "b": np.ones(1)}] * 9)) == [1, "b"]


def test_another_number_of_vectors_than_peers_is_an_error():
    with pytest.raises(DesignError, match="for 9 peers, but 8"):
        run(by_name("grouped").on(best(9, 3, 0)), [np.ones(2)] * 8)
    with pytest.raises(DesignError, match="sends to peer 8, but 8 take part"):
        run(partial(grouped, design=best(9, 3, 0)), [np.ones(2)] * 8)


def test_flatten_all_promotes_everybody_alike():
    schema, vectors = flatten_all([Container.of(np.ones(3, np.float32))] * 3, dtype="float64")
    assert schema.dtype == "float64"
    assert {vector.dtype for vector in vectors} == {np.dtype("float64")}


def test_importing_the_package_does_not_import_torch():
    code = "import sys, securedfl; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
