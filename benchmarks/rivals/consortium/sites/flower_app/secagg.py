"""An app for Flower's deployment: FedAvg with SecAgg+, which only the legacy API has."""

from __future__ import annotations

import os
from pathlib import Path

from begin import begun
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

from training import SITE, hold, load, note, save, train

SERVER = -1


class Site(NumPyClient):
    def fit(self, parameters, config):
        return [train(int(os.environ[SITE]), int(config["round"]), parameters[0])], 1, {}

    def evaluate(self, parameters, config):
        hold(int(os.environ[SITE]), int(config["round"]), parameters[0])
        return 0.0, 1, {}


client = ClientApp(client_fn=lambda context: Site().to_client(), mods=[secaggplus_mod])
server = ServerApp()


class Saving(FedAvg):
    """Keeps a checkpoint after each round."""

    def __init__(self, path: Path, done: int, **options) -> None:
        super().__init__(**options)
        self._path, self._done = path, done

    def aggregate_fit(self, server_round, results, failures):
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        if parameters is not None:
            save(self._path, self._done + server_round, parameters_to_ndarrays(parameters)[0])
        return parameters, metrics


@server.main()
def main(grid, context) -> None:
    enough, rounds, kept = begun(grid, context)
    done, model = load(kept)
    strategy = Saving(
        kept,
        done,
        min_fit_clients=enough,
        min_evaluate_clients=enough,
        min_available_clients=enough,
        initial_parameters=ndarrays_to_parameters([model]),
        on_fit_config_fn=lambda round: {"round": done + round},
        on_evaluate_config_fn=lambda round: {"round": done + round},
    )
    patience = float(context.run_config["patience"])
    # every site holds a share of every other one's secrets, and half of them are enough
    work = SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.5, max_weight=1, timeout=patience)
    config = ServerConfig(num_rounds=rounds - done, round_timeout=patience)
    DefaultWorkflow(fit_workflow=work)(grid, LegacyContext(context=context, config=config, strategy=strategy))
    hold(SERVER, rounds, load(kept)[1])
    note(SERVER, rounds, "ended")
