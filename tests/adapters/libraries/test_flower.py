"""Real Flower ClientApps whose mod averages between sites, and Flower's own FedAvg on what they answer."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from securedfl.adapters.flower import federated_mod
from securedfl.errors import ConfigError
from tests.network.peer_processes import Federation


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """What Flower's own processes set before they make messages."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def client_app(k: int, *options) -> ClientApp:
    app = ClientApp(mods=[federated_mod(*options)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord({name: Array(a.numpy() + k) for name, a in message.content["arrays"].items()})
        metrics = MetricRecord({"num-examples": k + 1, "loss": 0.5 * k})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


def ask(app: ClientApp, node: int, arrays: dict[str, np.ndarray], kind: str = "train", **node_config) -> Message:
    record = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    message = Message(RecordDict({"arrays": record}), dst_node_id=node, message_type=kind)
    return app(message, Context(1, node, node_config, RecordDict(), {}))


def ask_all(folder, apps, arrays) -> list[Message]:
    replies: list = [None] * len(apps)

    def work(k):
        try:
            replies[k] = ask(apps[k], k, arrays, **{"securedfl-peer": str(folder / f"p{k}.toml")})
        except BaseException as error:  # handed to the test
            replies[k] = error

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(len(apps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    failed = [reply for reply in replies if not isinstance(reply, Message)]
    assert not failed, failed
    return replies


@pytest.mark.parametrize(("weighted", "moved"), [(False, 1.0), (True, (0 * 1 + 1 * 2 + 2 * 3) / 6)])
def test_the_server_gets_the_common_mean_from_everybody(tmp_path, weighted, moved):
    settings = {"settings": {"max_weight": 3}} if weighted else {}
    Federation(tmp_path, 3, protocol="shares", group_size=2, rounds=1, weighted=weighted, **settings)
    apps = [client_app(k) for k in range(3)]
    strategy = FedAvg(fraction_train=1.0)
    arrays = {"w": np.arange(4, dtype=np.float32), "b": np.zeros((2, 2), dtype=np.float64)}
    for round in (1, 2):
        replies = ask_all(tmp_path, apps, arrays)
        got = [{name: a.numpy() for name, a in reply.content["arrays"].items()} for reply in replies]
        for reply in got:
            np.testing.assert_array_equal(reply["w"], got[0]["w"])
            np.testing.assert_allclose(reply["w"], np.arange(4) + moved * round, atol=1e-4)
            assert (reply["w"].dtype, reply["b"].dtype) == (np.float32, np.float64)
        # metrics are the ClientApp's own affair
        assert [reply.content["metrics"]["loss"] for reply in replies] == [0.0, 0.5, 1.0]
        common, _ = strategy.aggregate_train(round, replies)
        arrays = {name: array.numpy() for name, array in common.items()}
        np.testing.assert_allclose(arrays["b"], got[0]["b"], atol=1e-6)


def test_other_messages_pass_and_a_missing_peer_file_is_told(tmp_path):
    assert ask(client_app(0), 0, {"w": np.zeros(1)}, "evaluate").content["metrics"]["num-examples"] == 1
    with pytest.raises(ConfigError, match=r"--node-config 'securedfl-peer=\"PATH\"'"):
        ask(client_app(0), 0, {"w": np.zeros(1)})
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        ask(client_app(0, tmp_path / "nowhere.toml"), 0, {"w": np.zeros(1)})
