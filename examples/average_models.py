"""Average the models of nine peers as they would do it themselves; here all of them are in one process.

Run it with: python examples/average_models.py
"""

import torch
from torch import nn

import securedfl


def main() -> None:
    """Average nine small networks, weighted by how much data each peer has."""
    models = [nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)) for _ in range(9)]
    samples = [100.0 * (peer + 1) for peer in range(9)]

    mean = securedfl.average([model.state_dict() for model in models], weights=samples)

    truth = sum(w * model.state_dict()["0.weight"].double() for w, model in zip(samples, models, strict=True))
    error = (mean["0.weight"] - truth / sum(samples)).abs().max()
    print(f"largest error of the average: {error:.1e}")

    for model in models:  # everybody goes on from the average
        model.load_state_dict(mean)
    outputs = [model(torch.ones(1, 8)) for model in models]
    print("all peers hold the same model:", all(torch.equal(outputs[0], output) for output in outputs))


if __name__ == "__main__":
    main()
