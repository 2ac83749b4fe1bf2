"""An app for Flower's deployment: FedAvg of today's Message API, a site that trains, a server that waits for all."""

from __future__ import annotations

import os
import time

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from training import SITE, hold, note, start, train

SERVER = -1
client = ClientApp()
server = ServerApp()


@client.train()
def trained(message: Message, context) -> Message:
    site, round = int(os.environ[SITE]), int(message.content["config"]["server-round"])
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    content = {"arrays": ArrayRecord([train(site, round, model)]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)


@client.evaluate()
def evaluated(message: Message, context) -> Message:
    site, round = int(os.environ[SITE]), int(message.content["config"]["server-round"])
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    hold(site, round, model)
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


@server.main()
def main(grid, context) -> None:
    given = context.run_config
    while len(list(grid.get_node_ids())) < given["sites"]:
        time.sleep(1)
    enough = int(given["enough"])
    strategy = FedAvg(min_train_nodes=enough, min_evaluate_nodes=enough, min_available_nodes=enough)
    rounds = int(given["rounds"])
    result = strategy.start(grid, ArrayRecord([start()]), num_rounds=rounds, timeout=float(given["patience"]))
    hold(SERVER, rounds, result.arrays.to_numpy_ndarrays()[0])
    note(SERVER, rounds, "ended")
