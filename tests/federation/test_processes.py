"""A site of several processes: two torchrun agents, one process each, beside two sites of one process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import securedfl
from securedfl.federation.founding.files import free_ports
from tests.federation.spread_site import add_one, model_of, numbers
from tests.network.peer_processes import Federation

SITE = Path(__file__).with_name("spread_site.py")


@pytest.fixture
def torchrun(tmp_path):
    """Start two agents, as on two machines, and end them."""
    started = []

    def start(*arguments):
        port = free_ports(1)[0]
        for node in range(2):
            options = ["--nnodes=2", "--nproc-per-node=1", f"--node-rank={node}", "--master-addr=127.0.0.1"]
            command = [sys.executable, "-m", "torch.distributed.run", *options, f"--master-port={port}", str(SITE)]
            with (tmp_path / f"agent{node}.log").open("w") as log:
                started.append(subprocess.Popen([*command, *arguments], stdout=log, stderr=log))
        return started

    yield start
    for process in started:
        process.terminate()
    for process in started:
        process.wait(60)


def test_two_torchrun_agents_are_one_peer(tmp_path, torchrun):
    Federation(tmp_path, 3, protocol="shares", group_size=2, rounds=1, weighted=True, settings={"max_weight": 10})
    agents = torchrun(str(tmp_path / "p0.toml"), str(tmp_path / "said"))
    models = {}

    def site(k):
        model = model_of(float(k))
        with securedfl.join(tmp_path / f"p{k}.toml") as peer:
            peer.average_(model, weight=3.0)
            add_one(model)
            peer.average_(model, weight=3.0)
        models[k] = model

    threads = [threading.Thread(target=site, args=(k,), daemon=True) for k in (1, 2)]
    for thread in threads:
        thread.start()
    ended = [agent.wait(240) for agent in agents]
    assert ended == [0, 0], "\n".join((tmp_path / f"agent{node}.log").read_text() for node in range(2))
    for thread in threads:
        thread.join(60)
    first, second = (json.loads((tmp_path / f"said.{rank}").read_text()) for rank in range(2))
    # 4 x 10 + 3 x 1 + 3 x 2 of 10; the frozen weight of the normalisation, and what it counts, stay at home
    assert first["copied"] == [0.0, 1.0, 4.9, 10.0]
    assert first["resumed"] == [True, 1]
    # the shards of the second model hold what stayed at home with the first
    assert first["sharded"] == [0.0, 1.0, 5.9, 11.0]
    assert numbers(models[1]) == [0.0, 1.0, 2.0, 5.9]
    assert first["first"] == [False, True]
    assert first["done"] == [True, 2]
    assert first["late"] == "RunEndedError"
    assert "PeerLostError: rank 1 of this site failed, so none" in first.pop("failed")
    assert "missing here or has another shape" in second.pop("failed")
    assert "different weights (4.0, 5.0)" in first["weights"]
    assert first == second
