"""The engine ray against Ray itself: one, two and three nodes, a killed worker, a killed node (`make test-ray`)."""

import os
import signal
import socket
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from securedfl import SecuredFLError
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder.checkpoint import load
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.train import resume, train
from securedfl.learning.training.cluster.ray_host import LOOPBACK, QUIET

os.environ.update(QUIET | LOOPBACK)
ray = pytest.importorskip("ray", reason="Ray is not installed; `make test-ray` installs and runs these")
from ray.cluster_utils import Cluster  # noqa: E402 - the environment comes first

METHODS = ("local", "secured", "shares")
SETTINGS = {"peers": 9, "rounds": 4, "model": "linear", "optimizer": "adam", "methods": ",".join(METHODS)}
BITS = ("accuracy", "loss", "train_loss", "error_mse", "error_max", "bytes_per_peer")


class Listen(Observer):
    """Keeps what the user is told, and does something once a round is done."""

    def __init__(self, after=None):
        self.told_lines, self._after = [], dict(after or {})

    def told(self, text):
        self.told_lines.append(text)

    def round_finished(self, row):
        self._after.pop((row.method, row.round), lambda: None)()


def numbers(folder, methods=METHODS):
    """Return all that two runs have to have in common: every metric but times, and all parameters and states."""
    rows = [[getattr(row, name) for name in BITS] for row in read_rows(folder, Row)]
    points = [load(folder / "checkpoints" / f"{method}.safetensors") for method in methods]
    return rows, [(point.round, point.parameters, point.states) for point in points]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local") / "run"
    train(**SETTINGS, workers=1, out=folder)
    return numbers(folder)


@pytest.fixture
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


def processes(name):
    """Return the numbers of the processes that descend from this one and show that name."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            status = dict(line.split(":\t", 1) for line in (path / "status").read_text().splitlines() if ":\t" in line)
            if status["State"][0] != "Z":
                parents[int(path.name)] = int(status["PPid"]), (path / "cmdline").read_text().replace("\0", " ")
    found = {os.getpid()}
    while more := {pid for pid, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return sorted(pid for pid in found - {os.getpid()} if name in parents[pid][1])


def test_one_node_of_our_own_computes_the_same_bits_listens_on_loopback_only_and_ends_its_processes(expected, tmp_path):
    seen = []

    def look():
        seen.extend(node["NodeManagerAddress"] for node in ray.nodes())
        seen.append(processes("ray::Shard"))

    listen = Listen({("local", 1): look})
    train(**SETTINGS, engine="ray", workers=2, out=tmp_path / "run", observer=listen)
    np.testing.assert_equal(numbers(tmp_path / "run"), expected)
    address, shards = seen
    assert address == "127.0.0.1"
    assert len(shards) == 2
    assert not ray.is_initialized()
    assert not processes("ray")
    assert len(listen.told_lines) == 1
    # either engine goes on with what the other began
    resume(tmp_path / "run", changes={"engine": "local", "rounds": 5})


def test_two_nodes_of_which_a_worker_and_then_a_whole_node_is_killed(cluster, expected, tmp_path):
    (other,) = cluster.worker_nodes

    def kill_worker():
        os.kill(processes("ray::Shard")[0], signal.SIGKILL)

    def kill_node():
        cluster.remove_node(other, allow_graceful=False)

    listen = Listen({("local", 1): kill_worker, ("secured", 2): kill_node})
    train(**SETTINGS, engine="ray", address=cluster.address, out=tmp_path / "run", observer=listen)
    np.testing.assert_equal(numbers(tmp_path / "run"), expected)
    stated, worker, node = listen.told_lines
    assert stated.startswith("Ray: 2 shards on 2 nodes, up to 5 peers")
    assert "start again on the same node" in worker
    assert "start again on node" in node


def test_three_nodes_compute_the_same_bits(cluster, expected, tmp_path):
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    listen = Listen()
    train(**SETTINGS, engine="ray", address=cluster.address, out=tmp_path / "run", observer=listen)
    np.testing.assert_equal(numbers(tmp_path / "run"), expected)
    assert listen.told_lines[0].startswith("Ray: 3 shards on 3 nodes, up to 3 peers")


def test_sums_of_drawn_members_come_home_and_no_number_changes(tmp_path):
    drawn = {"peers": 60, "peers_per_round": 12, "held_back": 0.2, "messages_every": 3, "methods": "secured,shares"}
    for engine in ("local", "ray"):
        train(**SETTINGS | drawn, engine=engine, workers=2, out=tmp_path / engine)
    np.testing.assert_equal(*(numbers(tmp_path / engine, ("secured", "shares")) for engine in ("local", "ray")))


def test_nobody_at_the_address(tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with pytest.raises(SecuredFLError, match=f"no Ray cluster answers at 127.0.0.1:{port} .*ray start"):
        train(**SETTINGS, engine="ray", address=f"127.0.0.1:{port}", out=tmp_path / "run")
    with pytest.raises(SecuredFLError, match="no Ray cluster runs on this machine"):
        train(**SETTINGS, engine="ray", address="auto", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
