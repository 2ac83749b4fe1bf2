"""The site of `make demo-lora`: what it trains, and that the average of B is exact."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import securedfl
from securedfl.learning.training.trainer import one_thread

FOLDER = Path(__file__).parents[2] / "examples" / "lora"
MODULES = ("small_gpt", "lora_app")


@pytest.fixture
def example(monkeypatch):
    """The modules of the example, which are gone afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import lora_app
    import small_gpt

    with one_thread():
        yield small_gpt, lora_app
    for name in MODULES:
        sys.modules.pop(name, None)


def test_sites_train_b_only_and_its_average_is_that_of_the_products(example, tmp_path):
    gpt, app = example
    texts, characters = gpt.numbered(gpt.read())
    assert sum(path.stat().st_size for path in gpt.TEXTS.glob("*.txt")) < 200_000
    with torch.random.fork_rng():
        torch.manual_seed(0)
        base = gpt.Gpt(characters)
    np.savez(tmp_path / "base.npz", **{name: value.numpy() for name, value in base.state_dict().items()})
    rows = gpt.all_rows(texts["lear"])[:2]
    sites = [
        app.make({"number": number, "seed": 0, "base": str(tmp_path / "base.npz"), "name": f"peer-{number}"})
        for number in range(3)
    ]
    for number, (trained, text, update, evaluate) in enumerate(sites):
        assert {name.rpartition(".")[2] for name in trained} == {"lora_B"}
        correct, loss, count = evaluate(trained, text)
        assert 0 <= correct <= count
        # B begins at zero, so LoRA changes nothing yet
        held_back = gpt.all_rows(gpt.parted(texts[gpt.SITES[number]])[1])
        assert float(gpt.loss_of(base, held_back, "sum").detach()) == pytest.approx(loss)
        assert update(trained, text, 1) > 0
        assert evaluate(trained, text)[1] < loss

    models = [app.freeze_a_(gpt.load_base(tmp_path / "base.npz", characters)) for _ in range(3)]
    layers = [model.blocks[0].widen for model in models]
    name = "blocks.0.widen.lora_B"
    products = torch.stack([trained[name].detach() @ layers[0].lora_A for trained, *_ in sites]).mean(0)
    assert all(torch.equal(layer.lora_A, layers[0].lora_A) for layer in layers)
    securedfl.average_([trained for trained, *_ in sites], protocol="shares", group_size=2)
    torch.testing.assert_close(sites[2][0][name].detach() @ layers[0].lora_A, products, rtol=0, atol=1e-5)
    assert models[0](rows[:, :-1]).shape == (2, gpt.CONTEXT, characters)
