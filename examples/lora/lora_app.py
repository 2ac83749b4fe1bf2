"""What a site trains: LoRA's B on its own text, from a common base. `securedfl up --entry lora_app:make` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from small_gpt import SITES, all_rows, load_base, loss_of, numbered, parted, read, some_rows

from securedfl.adapters.peft import freeze_a_

STEPS, BATCH, RATE = 10, 8, 1e-2


def make(settings: dict[str, Any]) -> tuple[dict[str, torch.nn.Parameter], torch.Tensor, Any, Any]:
    """Return what is averaged (B, by name), the site's text, how to train on it, and how to test."""
    texts, characters = numbered(read(Path(settings["plays"]) if "plays" in settings else None))
    text, held_back = parted(texts[SITES[settings["number"]]])
    # A from a seed, the same at all sites, and frozen: then the average of B A is exact
    model = freeze_a_(load_base(Path(settings["base"]), characters), seed=settings["seed"])
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    optimizer = torch.optim.Adam(trained.values(), lr=RATE)
    generator = torch.Generator().manual_seed(settings["number"])

    def update(_trained: Any, text: torch.Tensor, _round: int) -> float:
        return train(model, optimizer, text, STEPS, BATCH, generator)

    update.state_dict, update.load_state_dict = optimizer.state_dict, optimizer.load_state_dict

    def evaluate(_trained: Any, _text: torch.Tensor) -> tuple[int, float, int]:
        return test(model, held_back)

    return trained, text, update, evaluate


def train(model: Any, optimizer: Any, text: torch.Tensor, steps: int, batch: int, generator: torch.Generator) -> float:
    """Take some steps on rows of a text, and return the mean loss."""
    total = 0.0
    for _ in range(steps):
        loss = loss_of(model, some_rows(text, batch, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
    return total / steps


@torch.no_grad()
def test(model: Any, text: torch.Tensor) -> tuple[int, float, int]:
    """Return how many characters of a text were told right, the summed loss, and how many there are."""
    rows = all_rows(text)
    correct = (model(rows[:, :-1]).argmax(dim=2) == rows[:, 1:]).sum()
    return int(correct), float(loss_of(model, rows, "sum")), rows[:, 1:].numel()
