"""The real Trainer of transformers, with a tiny GPT-2 made from its configuration, and PEFT's LoRA on it."""

from __future__ import annotations

import re

import numpy as np
import peft
import pytest
import torch
import transformers

from securedfl.adapters.peft import freeze_a_
from securedfl.adapters.transformers import FederatedCallback
from securedfl.containers import Container
from securedfl.errors import ConfigError, InvalidInputError

WORDS, LENGTH = 24, 12


def gpt(seed: int, dtype: torch.dtype = torch.float32) -> transformers.GPT2LMHeadModel:
    torch.manual_seed(seed)
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": LENGTH}
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **size, **off)
    return transformers.GPT2LMHeadModel(config).to(dtype)


def lora(model, names=("default",)):
    settings = peft.LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    made = peft.get_peft_model(model, settings, adapter_name=names[0])
    for name in names[1:]:
        made.add_adapter(name, settings)
    return made


def texts(k: int, count: int = 16) -> list[dict[str, torch.Tensor]]:
    random = np.random.default_rng(k)
    rows = torch.from_numpy((random.integers(0, WORDS, (count, 1)) + np.arange(LENGTH) * (k + 1)) % WORDS)
    return [{"input_ids": row, "labels": row} for row in rows]


def trainer(model, folder, data, **arguments):
    given = {"max_steps": 6, "per_device_train_batch_size": 4, "learning_rate": 0.01, "report_to": "none", **arguments}
    settings = transformers.TrainingArguments(
        output_dir=str(folder), use_cpu=True, disable_tqdm=True, logging_strategy="no", save_strategy="no", **given
    )
    return transformers.Trainer(model=model, args=settings, train_dataset=data)


def flat(model) -> np.ndarray:
    opened = Container.of(model)
    return np.array(opened.flatten(opened.schema()))


def all_alike(vectors) -> bool:
    return all(np.array_equal(vectors[0], vector) for vector in vectors)


def trainers(folder, make=gpt, count=16, **arguments):
    """One trainer per site; made one after the other, because torch has one generator for all threads."""
    return [trainer(make(k), folder / f"run{k}", texts(k, count * (k + 1)), **arguments) for k in range(3)]


def fit(training, peer, **options):
    """Train in a federation: three lines, as in docs/guides/frameworks.md."""
    training.add_callback(callback := FederatedCallback(peer, **options))
    training.train()
    return flat(training.model), peer.round, callback.loop.ended


def test_the_whole_model(sites, tmp_path):
    """After a restart it goes on, and stops when the run is over."""
    first = trainers(tmp_path)
    before = flat(first[0].model)
    found = sites(lambda k, peer: fit(first[k], peer, steps=2), rounds=4)
    assert all_alike([vector for vector, _, _ in found])
    assert not np.allclose(before, found[0][0], atol=1e-3)
    # the common start, and one average for every two of six steps
    assert [(round, ended) for _, round, ended in found] == [(4, "")] * 3

    second = trainers(tmp_path)
    again = sites(lambda k, peer: fit(second[k], peer, steps=2))
    assert all_alike([vector for vector, _, _ in again])
    assert [round for _, round, _ in again] == [5] * 3
    assert "all rounds of this run are done" in again[0][2]

    third = trainers(tmp_path)
    late = sites(lambda k, peer: fit(third[k], peer, steps=2))
    np.testing.assert_array_equal(late[1][0], again[1][0])


def test_it_is_the_average_of_what_the_sites_train(sites, tmp_path):
    """Two epochs of one step each, beside the same without securedfl."""
    settings = {"num_train_epochs": 2, "max_steps": -1, "optim": "sgd", "per_device_train_batch_size": 64}
    settings |= {"lr_scheduler_type": "constant", "learning_rate": 0.1}
    expected = np.mean([flat(gpt(k)).astype(np.float64) for k in range(3)], axis=0)
    for _epoch in range(2):
        moved = []
        for training in trainers(tmp_path, **{**settings, "num_train_epochs": 1}):
            opened = Container.of(training.model)
            opened.put(opened.schema(), expected.astype(np.float32))
            training.train()
            moved.append(flat(training.model).astype(np.float64))
        expected = np.mean(moved, axis=0)

    made = trainers(tmp_path, **settings)
    for vector, _, _ in sites(lambda k, peer: fit(made[k], peer), rounds=2):
        np.testing.assert_allclose(vector, expected, atol=2e-5)
    start = np.mean([flat(gpt(k)) for k in range(3)], axis=0)
    assert np.abs(start - expected).max() > 1e-3


def test_lora_sends_its_adapter_only_and_the_average_is_exact(sites, tmp_path):
    made = trainers(tmp_path, lambda _k: freeze_a_(lora(gpt(0)), seed=1), max_steps=4)

    def work(k, peer):
        vector, _, _ = fit(made[k], peer, steps=2)
        with np.load(peer._member.site.config.out / "update.npz") as file:
            return vector, sum(array.nbytes for array in file.values())

    results = sites(work, rounds=2)
    names = [leaf.name for leaf in Container.of(made[0].model).schema().leaves]
    assert [name.split(".")[-3:] for name in names] == [["lora_B", "default", "weight"]]
    assert all_alike([vector for vector, _ in results])
    layers = [training.model.base_model.model.transformer.h[0].attn.c_attn for training in made]
    products = [layer.get_delta_weight("default").detach().numpy() for layer in layers]
    assert all_alike(products)
    assert np.abs(products[0]).max() > 0
    # nor does a site keep more than that
    assert results[0][1] < 3 * results[0][0].nbytes


def test_one_adapter_of_several_by_name(sites, tmp_path):
    def both(_k):
        model = lora(gpt(0), names=("mine", "ours"))
        model.set_adapter("ours")
        return model

    wrong, made = trainers(tmp_path, both, max_steps=1), trainers(tmp_path, both, max_steps=1)

    def work(k, peer):
        with pytest.raises(ConfigError, match="unknown adapter 'our'; did you mean 'ours'"):
            fit(wrong[k], peer, steps=1, adapter="our")
        fit(made[k], peer, steps=1, adapter="ours")
        return np.concatenate([value.detach().reshape(-1) for name, value in named(made[k]) if ".ours." in name])

    def named(training):
        return training.model.named_parameters()

    assert all_alike(sites(work, rounds=1))


def test_half_precision(sites, tmp_path):
    made = trainers(tmp_path, lambda k: gpt(k, torch.bfloat16), max_steps=2)
    assert all_alike([vector for vector, _, _ in sites(lambda k, peer: fit(made[k], peer, steps=1), rounds=2)])
    assert made[0].model.lm_head.weight.dtype == torch.bfloat16


def test_weights_are_the_samples(sites, tmp_path):
    made = trainers(tmp_path, count=4, max_steps=1, learning_rate=0.0)
    expected = np.average([flat(gpt(k)) for k in range(3)], axis=0, weights=[4, 8, 12])
    settings = {"weighted": True, "settings": {"max_weight": 12}}
    for vector, _, _ in sites(lambda k, peer: fit(made[k], peer, steps=1), rounds=1, **settings):
        np.testing.assert_allclose(vector, expected, atol=1e-4)


def test_sites_whose_models_differ_all_fail(sites, tmp_path, monkeypatch):
    monkeypatch.setattr("securedfl.network.strangers.PATIENCE", 1.0)
    made = trainers(tmp_path, lambda k: gpt(0, torch.bfloat16 if k == 1 else torch.float32))

    def work(k, peer):
        with pytest.raises(ConfigError, match="mend that, then start all sites again") as told:
            fit(made[k], peer)
        return str(told.value)

    found = sites(work)
    assert re.search(r"weight is bfloat16\[\d+, \d+\] there and float32\[", found[0])
    assert re.search(r"weight is float32\[\d+, \d+\] there and bfloat16\[", found[1])


def test_an_adapter_that_is_not_trained_and_a_callback_without_join(sites, tmp_path):
    with pytest.raises(ConfigError, match="not a peer"):
        FederatedCallback("peer.toml")
    made = trainers(tmp_path, lambda _k: lora(gpt(0)))

    def work(k, peer):
        for parameter in made[k].model.parameters():
            parameter.requires_grad_(False)
        with pytest.raises(InvalidInputError, match="is_trainable=True"):
            fit(made[k], peer)

    sites(work)
