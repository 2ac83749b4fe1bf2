"""One site of test_accelerate, in a process of its own, because accelerate keeps one state per process."""

import json
import sys

import torch
from accelerate import Accelerator

import securedfl
from securedfl.adapters.accelerate import FederatedSGD


def main(path: str, k: float, batches: int) -> None:
    """Two batches make a step, and two steps a round; a step adds k to the weight."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, k)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer = accelerator.prepare(model, optimizer)
    seen = []
    with securedfl.join(path) as peer, FederatedSGD(accelerator, model, peer, 2) as federated:
        for _ in range(batches):
            with accelerator.accumulate(model):
                accelerator.backward(-k * model(torch.ones(1, 1)).sum())
                optimizer.step()
                optimizer.zero_grad()
            go_on = federated.step()
            seen.append(round(float(model.weight.detach()), 4))
            if not go_on:
                break
    last = round(float(model.weight.detach()), 4)
    print(json.dumps({"seen": seen, "last": last, "ended": federated.loop.ended, "round": peer.round}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
