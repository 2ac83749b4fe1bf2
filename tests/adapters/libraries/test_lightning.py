"""The real Trainer of Lightning."""

from __future__ import annotations

import lightning
import numpy as np
import peft
import pytest
import torch

from securedfl.adapters.lightning import FederatedCallback
from securedfl.adapters.peft import freeze_a_
from securedfl.containers import Container
from securedfl.errors import ConfigError


class Line(lightning.LightningModule):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        self.validated: list[np.ndarray] = []

    def training_step(self, batch, _index):
        x, y = batch
        return torch.nn.functional.mse_loss(self.model(x), y)

    def validation_step(self, _batch, _index):
        self.validated.append(flat(self))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(k: int, count: int = 16, batch_size: int = 16) -> torch.utils.data.DataLoader:
    random = torch.Generator().manual_seed(k)
    x = torch.randn(count, 3, generator=random)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True) + k), batch_size)


def trainer(*callbacks, **settings) -> lightning.Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "accelerator": "cpu", "num_sanity_val_steps": 0}
    return lightning.Trainer(callbacks=list(callbacks), **quiet, **settings)


def flat(module) -> np.ndarray:
    opened = Container.of(module)
    return np.array(opened.flatten(opened.schema()))


def all_alike(vectors) -> bool:
    return all(np.array_equal(vectors[0], vector) for vector in vectors)


def test_epochs_are_averaged_before_validation(sites):
    """Beside the same without securedfl: one step per epoch, averaged by hand."""
    modules = [Line(k) for k in range(3)]
    mean = np.mean([flat(module).astype(np.float64) for module in modules], axis=0)
    for _epoch in range(2):
        moved = []
        for k in range(3):
            module = Line(k)
            opened = Container.of(module)
            opened.put(opened.schema(), mean.astype(np.float32))
            trainer(max_epochs=1).fit(module, loader(k))
            moved.append(flat(module).astype(np.float64))
        mean = np.mean(moved, axis=0)

    def work(k, peer):
        callback = FederatedCallback(peer)
        trainer(callback, max_epochs=9).fit(modules[k], loader(k), loader(k))
        return callback.loop.ended

    ended = sites(work, rounds=2)
    assert "all rounds of this run are done" in ended[0]
    for module in modules:
        np.testing.assert_allclose(flat(module), mean, atol=2e-5)
        np.testing.assert_array_equal(module.validated[-1], flat(module))
        # training stopped with the run, not after nine epochs
        assert len(module.validated) == 2


def test_steps_a_restart_and_the_end(sites):
    modules = [Line(k) for k in range(3)]

    def work(k, peer):
        callback = FederatedCallback(peer, steps=4)
        trainer(callback, max_steps=6).fit(modules[k], loader(k, 48, 8))
        return flat(modules[k]), peer.round

    # the common start, after 4 steps, and after the last 2
    first = sites(work, rounds=5)
    assert all_alike([vector for vector, _ in first])
    assert [round for _, round in first] == [3] * 3

    modules = [Line(50 + k) for k in range(3)]
    seen = []

    def begins(k, peer):
        class Watch(lightning.Callback):
            def on_train_batch_start(self, _trainer, module, _batch, index):
                if index == 0:
                    seen.append(flat(module))

        trainer(FederatedCallback(peer, steps=4), Watch(), max_steps=3).fit(modules[k], loader(k, 48, 8))
        return flat(modules[k]), peer.round

    again = sites(begins)
    assert all(np.array_equal(vector, first[0][0]) for vector in seen)
    assert len(seen) == 3
    assert all_alike([vector for vector, _ in again])
    assert [round for _, round in again] == [4] * 3


def test_a_peft_model_within_a_module(sites):
    modules = [Line(0) for _ in range(3)]
    for module in modules:
        settings = peft.LoraConfig(r=2, target_modules=["0"])
        module.model = freeze_a_(peft.get_peft_model(module.model, settings), seed=1)

    def work(k, peer):
        callback = FederatedCallback(peer, part=lambda module: module.model)
        trainer(callback, max_epochs=2).fit(modules[k], loader(k))
        return flat(modules[k].model)

    found = sites(work, rounds=2)
    assert all_alike(found)
    assert found[0].size == 4 * 2
    assert np.abs(found[0]).max() > 0


def test_weights_are_the_samples(sites):
    modules = [Line(k) for k in range(3)]
    expected = np.average([flat(module) for module in modules], axis=0, weights=[8, 16, 24])
    seen = {}

    class Watch(lightning.Callback):
        def __init__(self, k):
            self.k = k

        def on_train_batch_start(self, _trainer, module, _batch, _index):
            seen[self.k] = flat(module)

    def work(k, peer):
        trainer(FederatedCallback(peer), Watch(k), max_epochs=1).fit(modules[k], loader(k, 8 * (k + 1), 24))

    sites(work, rounds=1, weighted=True, settings={"max_weight": 24})
    for k in range(3):
        np.testing.assert_allclose(seen[k], expected, atol=1e-4)


def test_a_callback_without_join():
    with pytest.raises(ConfigError, match="not a peer"):
        FederatedCallback("peer.toml")
    with pytest.raises(ConfigError, match="one of the two"):
        FederatedCallback(None, steps=1, epochs=1)
