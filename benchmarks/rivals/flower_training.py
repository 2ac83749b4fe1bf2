"""Flower's own simulation of the training that benchmarks/many_peers.py does: FedAvg, clients on Ray, in the clear.

Called by it with one JSON text: where the samples are, and how many peers, members and rounds. Every client makes the
model, takes the parameters, trains its samples once with RMSprop and returns the parameters; the server scores the
common test set after every round. Prints rounds per second after the first round, which warms Ray's workers up.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

warnings.filterwarnings("ignore")
os.environ["RAY_DEDUP_LOGS"] = "0"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
GIVEN: dict[str, Any] = json.loads(sys.argv[1])


def cnn_small() -> Any:
    """Return the model that ours trains on digits, here in PyTorch's own words: this environment has no securedfl."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.GroupNorm(4, 64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 10)),
    )


def client_app(given: dict[str, Any]) -> Any:
    from flwr.client import ClientApp, NumPyClient

    def make(context: Any) -> Any:
        # imported in Ray's workers, once in each
        import numpy as np
        import torch

        torch.set_num_threads(1)
        peer = int(context.node_config["partition-id"])

        class Site(NumPyClient):
            def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
                data = np.load(given["data"])
                ends = data["ends"]
                own = slice(0 if peer == 0 else ends[peer - 1], ends[peer])
                x, y = torch.from_numpy(data["x"][own]), torch.from_numpy(data["y"][own])
                model = cnn_small()
                names = list(model.state_dict())
                arrays = [torch.from_numpy(np.array(p)) for p in parameters]
                model.load_state_dict(dict(zip(names, arrays, strict=True)))
                optimizer, loss_of = torch.optim.RMSprop(model.parameters(), lr=0.001), torch.nn.CrossEntropyLoss()
                order = torch.randperm(len(x))
                for start in range(0, len(x), 32):
                    batch = order[start : start + 32]
                    optimizer.zero_grad()
                    loss_of(model(x[batch]), y[batch]).backward()
                    optimizer.step()
                return [value.numpy() for value in model.state_dict().values()], 1, {}

        return Site().to_client()

    return ClientApp(client_fn=make)


def main() -> None:
    import numpy as np
    import torch
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    data = np.load(GIVEN["data"])
    test_x, test_y = torch.from_numpy(data["test_x"]), torch.from_numpy(data["test_y"])
    torch.manual_seed(0)
    model = cnn_small()
    names, ended, found = list(model.state_dict()), [], {"accuracy": 0.0}

    def score(_round: int, parameters: list[Any], _config: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        arrays = [torch.from_numpy(np.array(p)) for p in parameters]
        model.load_state_dict(dict(zip(names, arrays, strict=True)))
        model.eval()
        with torch.inference_mode():
            found["accuracy"] = float((model(test_x).argmax(dim=1) == test_y).float().mean())
        ended.append(time.perf_counter())
        return 0.0, {}

    def serve(_context: Any) -> Any:
        strategy = FedAvg(
            fraction_fit=GIVEN["members"] / GIVEN["peers"],
            fraction_evaluate=0.0,
            min_fit_clients=GIVEN["members"],
            min_available_clients=GIVEN["peers"],
            evaluate_fn=score,
            initial_parameters=ndarrays_to_parameters([value.numpy() for value in model.state_dict().values()]),
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=GIVEN["rounds"]))

    run_simulation(
        server_app=ServerApp(server_fn=serve),
        client_app=client_app(GIVEN),
        num_supernodes=GIVEN["peers"],
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    # the first is the score before training, the second ends the round that warmed up
    speed = (len(ended) - 2) / (ended[-1] - ended[1])
    result = {"rounds_per_second": speed, "accuracy": found["accuracy"], "flwr": version("flwr"), "ray": version("ray")}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
