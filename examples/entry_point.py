"""An entry point in plain PyTorch: model, data and update for `securedfl peer`.

In federation.toml:    entry = "entry_point:make"
In each peer.toml:     [data]
                       samples = 300

The file must lie beside peer.toml or be importable. Whatever stands under [data] is handed to `make`.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def make(settings: dict[str, Any]) -> tuple[nn.Module, TensorDataset, Any, Any]:
    """Return model, data, update and evaluate. ``settings`` has the peer's name, the seed, and its [data]."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))  # begins alike at all sites
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    torch.manual_seed(zlib.crc32(settings["name"].encode()))  # other data at every site
    x = torch.randn(int(settings.get("samples", 200)), 8)
    y = (x[:, 0] * x[:, 1] > 0).long()
    held_out = len(x) // 10
    data = TensorDataset(x[held_out:], y[held_out:])
    test = x[:held_out], y[:held_out]

    def update(model: nn.Module, data: TensorDataset, round: int) -> float:
        torch.manual_seed(round)
        total = 0.0
        for x, y in DataLoader(data, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        return total / len(data)

    # its state never leaves this site, but is kept with checkpoints, so that a peer that is killed goes on with it
    update.state_dict, update.load_state_dict = optimizer.state_dict, optimizer.load_state_dict

    def evaluate(model: nn.Module, _data: TensorDataset) -> tuple[int, float, int]:
        x, y = test
        with torch.inference_mode():
            scores: Tensor = model(x)
        correct = int((scores.argmax(dim=1) == y).sum())
        return correct, float(nn.functional.cross_entropy(scores, y, reduction="sum")), len(y)

    return model, data, update, evaluate
