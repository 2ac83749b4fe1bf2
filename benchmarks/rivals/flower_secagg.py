"""Flower's SecAgg+ in its simulation: the legacy API, a server, and clients as Ray actors; nothing goes over a network.

Bytes are those of the arrays in the messages that clients return. Averages are Flower's rounds of fit, whose clients
return their vectors at once.
"""

from __future__ import annotations

import logging
import os
import time
import warnings

import numpy as np
from common import Watch, arguments, largest_error, tell, vector, versions

warnings.filterwarnings("ignore")
os.environ["RAY_DEDUP_LOGS"] = "0"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ARGS = arguments(__doc__)


def client_app():
    from flwr.client import ClientApp, NumPyClient
    from flwr.client.mod import secaggplus_mod

    size = ARGS.size

    class Site(NumPyClient):
        def __init__(self, peer: int) -> None:
            self.peer = peer

        def fit(self, parameters, config):
            return [vector(self.peer, size)], 1, {}

    def make(context):
        return Site(int(context.node_config["partition-id"])).to_client()

    return ClientApp(client_fn=make, mods=[secaggplus_mod])


def main() -> None:
    from flwr.common import Context, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import LegacyContext, ServerApp, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    watch, found = Watch(), {"bytes": 0}
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=ARGS.peers,
        min_available_clients=ARGS.peers,
        initial_parameters=ndarrays_to_parameters([np.zeros(ARGS.size, dtype=np.float32)]),
    )
    server = ServerApp()

    @server.main()
    def run(grid, context: Context) -> None:
        legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=1, round_timeout=600), strategy=strategy)
        original = grid.send_and_receive

        def counting(messages, **options):
            replies = list(original(messages, **options))
            found["bytes"] += sum(size_of(reply.content) for reply in replies)
            return replies

        grid.send_and_receive = counting
        # half of the others are a client's neighbours at most, and as many of them must be there at the end
        shares = min(ARGS.peers, 5)
        work = DefaultWorkflow(
            fit_workflow=SecAggPlusWorkflow(num_shares=shares, reconstruction_threshold=shares // 2 + 1, max_weight=1)
        )
        work(grid, legacy)
        watch.begin()
        for _ in range(ARGS.repeat):
            found["bytes"] = 0
            with watch.average():
                work.fit_workflow(grid, legacy)
        import flwr.compat.common.recorddict_compat as compat
        from flwr.server.workflow.constant import MAIN_PARAMS_RECORD

        record = legacy.state.array_records[MAIN_PARAMS_RECORD]
        mean = parameters_to_ndarrays(compat.arrayrecord_to_parameters(record, keep_input=True))[0]
        result = watch.result(ARGS, largest_error=largest_error(mean, ARGS.peers))
        result["bytes_per_peer"] = found["bytes"] / ARGS.peers
        tell({**result, "versions": versions("flwr", "ray", "numpy")})

    run_simulation(
        server_app=server,
        client_app=client_app(),
        num_supernodes=ARGS.peers,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    time.sleep(1)


def size_of(content) -> int:
    """Return the bytes of all arrays and values in a message."""
    total = 0
    for record in content.values():
        for value in record.values():
            data = getattr(value, "data", value)
            each = data if isinstance(data, list) else [data]
            total += sum(len(one) if isinstance(one, bytes) else 8 for one in each)
    return total


if __name__ == "__main__":
    main()
