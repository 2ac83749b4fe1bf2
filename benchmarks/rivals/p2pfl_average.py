"""p2pfl: nodes that gossip whole models over gRPC on loopback until everybody has all of them; all in one process.

Rounds are p2pfl's own, with its default settings but patience for nodes that are silent: it votes on who trains,
gossips every second, and repeats until nothing new comes, so that a round takes as long as its timers say. All nodes
are connected with all. Time is from the last vector of a round to the end of the round at the last node.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time

import numpy as np
from common import Watch, arguments, largest_error, raise_loopback, tell, vector, versions
from consortium.p2pfl_node import make_node

ARGS = arguments(__doc__)
PATIENCE = 60
LOCK = threading.Lock()
TRAINED: dict[int, list[float]] = {}
ENDED: dict[int, list[float]] = {}


def node(peer: int):
    def fit(_model: np.ndarray) -> np.ndarray:
        brought = vector(peer, ARGS.size)
        with LOCK:
            TRAINED.setdefault(peer, []).append(time.perf_counter())
        return brought

    def took(_model: np.ndarray) -> None:
        with LOCK:
            ENDED.setdefault(peer, []).append(time.perf_counter())

    return make_node("127.0.0.1", np.zeros(ARGS.size, dtype=np.float32), fit, took)


def main() -> None:
    raise_loopback()
    from p2pfl.settings import Settings

    # before anything else of p2pfl is imported: its logger would start Ray
    Settings.general.DISABLE_RAY = True
    from p2pfl.management.logger import logger
    from p2pfl.utils.topologies import TopologyFactory, TopologyType
    from p2pfl.utils.utils import wait_convergence, wait_to_finish

    # whoever is not heard for 5 s, the default, is left out for good; nine nodes that share two cores need longer
    Settings.heartbeat.TIMEOUT = PATIENCE
    Settings.training.AGGREGATION_TIMEOUT = PATIENCE
    logger.set_level("ERROR")
    nodes = [node(peer) for peer in range(ARGS.peers)]
    for each in nodes:
        each.start()
    TopologyFactory.connect_nodes(TopologyFactory.generate_matrix(TopologyType.FULL, len(nodes)), nodes)
    wait_convergence(nodes, ARGS.peers - 1, only_direct=True, wait=PATIENCE)
    watch, rounds = Watch(), ARGS.repeat + 1
    watch.begin()
    with watch.average():
        nodes[0].set_start_learning(rounds=rounds, epochs=1, trainset_size=ARGS.peers)
        try:
            # a round may wait for a vote and for models, each as long as that
            wait_to_finish(nodes, timeout=2 * PATIENCE * rounds)
        except TimeoutError as error:
            print(f"p2pfl did not finish {rounds} rounds: {error}", file=sys.stderr, flush=True)
            # its threads would keep this process
            os._exit(1)
    mean = nodes[-1].learner.get_model().get_parameters()[0]
    # bytes and processor are of all rounds
    whole = watch.result(ARGS, largest_error=largest_error(mean, ARGS.peers))
    spans = [max(ENDED[p][-(rounds - r)] for p in ENDED) - max(t[r] for t in TRAINED.values()) for r in range(rounds)]
    for key in ("processor_seconds_per_peer", "bytes_per_peer"):
        whole[key] = None if whole[key] is None else whole[key] / rounds
    tell(
        {
            **whole,
            "seconds": float(np.median(spans[1:])),
            "repeat": ARGS.repeat,
            "versions": versions("p2pfl", "grpcio"),
        }
    )


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())
    main()
