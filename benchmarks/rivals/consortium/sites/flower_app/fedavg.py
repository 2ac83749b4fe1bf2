"""An app for Flower's deployment: FedAvg of today's Message API, a site that trains, a server that waits for all."""

from __future__ import annotations

import os

from begin import begun
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from training import SITE, hold, load, note, save, train

SERVER = -1
client = ClientApp()
server = ServerApp()


def round_of(message: Message) -> int:
    """Return the round of a message, counted over all runs."""
    config = message.content["config"]
    return int(config["done"]) + int(config["server-round"])


@client.train()
def trained(message: Message, context) -> Message:
    site, round = int(os.environ[SITE]), round_of(message)
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    content = {"arrays": ArrayRecord([train(site, round, model)]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)


@client.evaluate()
def evaluated(message: Message, context) -> Message:
    site, round = int(os.environ[SITE]), round_of(message)
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    hold(site, round, model)
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


@server.main()
def main(grid, context) -> None:
    enough, rounds, kept = begun(grid, context)
    done, model = load(kept)

    def keep(round: int, arrays: ArrayRecord) -> None:
        if round:
            save(kept, done + round, arrays.to_numpy_ndarrays()[0])

    FedAvg(min_train_nodes=enough, min_evaluate_nodes=enough, min_available_nodes=enough).start(
        grid,
        ArrayRecord([model]),
        num_rounds=rounds - done,
        timeout=float(context.run_config["patience"]),
        train_config=ConfigRecord({"done": done}),
        evaluate_config=ConfigRecord({"done": done}),
        evaluate_fn=keep,
    )
    hold(SERVER, rounds, load(kept)[1])
    note(SERVER, rounds, "ended")
