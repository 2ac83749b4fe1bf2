"""Your own training loop in a federation: run this at every site with that site's peer.toml.

    python examples/own_loop.py hospital-a.toml

Any PyTorch model will do; the data here are made up, and different at every site.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import torch
from torch import nn

import securedfl


def main(path: str) -> None:
    """Fit a line through points that no single site has all of."""
    torch.manual_seed(zlib.crc32(Path(path).stem.encode()))
    x = torch.randn(200, 3)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.1 * torch.randn(200, 1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with securedfl.join(path) as peer:
        peer.resume_(model)  # after a crash: go on with what the others have
        while peer.round < 10:
            for _ in range(5):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
            peer.average_(model, weight=len(x))
    print(model.weight.detach().numpy().round(3).tolist())


if __name__ == "__main__":
    main(sys.argv[1])
