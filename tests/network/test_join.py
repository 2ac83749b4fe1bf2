"""The library for one's own loop, `securedfl check` and `securedfl certs` on the command line."""

from __future__ import annotations

import fcntl
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import securedfl
from securedfl.cli import app
from securedfl.cli.up import table
from securedfl.errors import ConfigError, InvalidInputError, PeerLostError, PrivacyError
from securedfl.federation.apps.app import EntryPoint
from securedfl.federation.checking.check import check, failure, what_to_do
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import choose_design
from securedfl.federation.peers.config import DeadlineConfig, FederationConfig, PeerConfig
from securedfl.federation.peers.events import PeerStatus
from securedfl.federation.peers.local import COMMAND
from securedfl.federation.peers.rules import make_averages, make_rules
from securedfl.federation.peers.site import pass_federation
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.train import train
from securedfl.learning.training.common_optimizer import CommonOptimizer
from securedfl.network.operator import Desk, Wish, want
from securedfl.network.peer import Peer
from securedfl.parameters import Schema
from securedfl.privacy.run_certificate import told
from securedfl.reporting.report import write_report
from tests.federation.learners import learner_of

EXAMPLES = Path(__file__).parents[2] / "examples"


def in_threads(work, count):
    errors = []

    def guarded(k):
        try:
            work(k)
        except BaseException as error:  # handed to the test
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    if errors:
        raise errors[0]


def test_join_averages_weighted_in_place(federation):
    made = federation(3, protocol="shares", group_size=2, weighted=True, settings={"max_weight": 10})
    models = [{"w": np.full(5, float(k)), "steps": np.array(k)} for k in range(3)]

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            assert not peer.resume_(models[k])
            for _ in range(2):
                peer.average_(models[k], weight=(1, 2, 7)[k])
                models[k]["w"] += k
            assert peer.last.members == (0, 1, 2)

    in_threads(work, 3)
    expected = (0 * 1 + 1 * 2 + 2 * 7) / 10
    for k, model in enumerate(models):
        np.testing.assert_allclose(model["w"], 2 * expected + k, atol=1e-5)
        out = made.folder / f"out-p{k}"
        rows = made.rows(k)
        assert [(row["round"], row["members"]) for row in rows] == [(0, made.names), (1, made.names)]
        assert all(row["train_seconds"] >= 0 and row.get("samples") is None for row in rows)
        # the log may have begun the next round before they left
        assert json.loads((out / "ledger.json").read_text())["averages"] in (2, 3)
        assert "seen from" in write_report(out).read_text()
    shown = CliRunner().invoke(app, ["audit", "--run", str(made.folder / "out-p0")])
    assert (shown.exit_code, "Ledger of the run" in shown.output) == (0, True), shown.output
    assert [int(model["steps"]) for model in models] == [0, 1, 2]


def test_what_is_local_stays_at_home_and_comes_back_after_a_restart(federation):
    made = federation(3, protocol="shares", group_size=2, local=["head"])

    def fresh(k):
        return {"body": np.full(4, float(k)), "head": np.full(k + 1, float(k)), "steps": np.array(k)}

    models = [fresh(k) for k in range(3)]

    def first(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            models[k]["head"] += 10
            peer.average_(models[k])

    in_threads(first, 3)
    expected = [model["head"].copy() for model in models]
    assert [head.tolist() for head in expected] == [[10], [11, 11], [12, 12, 12]]
    models = [fresh(k) for k in range(3)]

    def again(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            assert peer.resume_(models[k])

    in_threads(again, 3)
    for k, model in enumerate(models):
        np.testing.assert_allclose(model["body"], 1, atol=1e-5)
        np.testing.assert_array_equal(model["head"], expected[k])
        assert model["steps"] == k


def test_a_second_call_after_a_caught_error_brings_the_same_parameters(federation, monkeypatch):
    """Whatever the loop did to its model meanwhile: a second total with other parameters would tell the difference."""
    made = federation(3, protocol="resilient", group_size=2)
    average, brought = Peer.average, []

    def failing_once(self, vector, round):
        if self.settings.number == 1:
            brought.append((round, vector.copy()))
            if len(brought) == 1:
                raise MemoryError
        return average(self, vector, round)

    monkeypatch.setattr(Peer, "average", failing_once)
    models = [{"w": np.full(5, float(k))} for k in range(3)]

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            if k == 1:
                with pytest.raises(MemoryError):
                    peer.average_(models[k])
                models[k]["w"] += 100
            peer.average_(models[k])

    in_threads(work, 3)
    (first, vector), (second, same) = brought
    assert first == second == 0
    np.testing.assert_array_equal(vector, same)
    for model in models:
        np.testing.assert_allclose(model["w"], 1, atol=1e-5)


def test_parameters_that_cannot_be_averaged_are_not_kept(federation):
    """The loop mends its model and goes on: nothing was shared, so nothing is brought again."""
    made = federation(3, protocol="resilient", group_size=2, range=1e6)
    models = [{"w": np.full(5, float(k))} for k in range(3)]

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            for bad, text in (np.nan, "not finite"), (np.inf, "not finite"), (1e9, "beyond the range"):
                if k == 1:
                    with pytest.raises(InvalidInputError, match=text):
                        peer.average_({"w": np.array([1.0, 1, bad, 1, 1])})
            peer.average_(models[k])

    in_threads(work, 3)
    for model in models:
        np.testing.assert_allclose(model["w"], 1, atol=1e-5)


def test_an_optimiser_a_list_or_parameters_average_alike_until_the_run_is_done(federation):
    made = federation(3, protocol="shares", group_size=2, rounds=2)
    modules = [torch.nn.Linear(2, 1) for _ in range(3)]
    for k, module in enumerate(modules):
        torch.nn.init.constant_(module.weight, float(k))
        torch.nn.init.constant_(module.bias, float(k))
    handed = [
        list(modules[0].parameters()),
        [parameter.detach().numpy() for parameter in modules[1].parameters()],
        [parameter.detach() for parameter in modules[2].parameters()],
    ]

    def work(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            assert not peer.done
            peer.average_(handed[k])
            peer.average_(modules[0].parameters() if k == 0 else handed[k])
            assert not peer.done
            peer.average_(handed[k])
            assert peer.done
            with pytest.raises(PeerLostError, match="all 3 averages of this run are done"):
                peer.average_(handed[k])
        with pytest.raises(ConfigError, match="has left the federation"):
            peer.average_(handed[k])

    in_threads(work, 3)
    for module in modules:
        torch.testing.assert_close(module.weight.detach(), torch.ones(1, 2), rtol=0, atol=1e-5)
        torch.testing.assert_close(module.bias.detach(), torch.ones(1), rtol=0, atol=1e-5)


def load_example(name):
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_example_of_ones_own_loop(federation, capsys):
    made = federation(3, protocol="shares", group_size=2, rounds=20)
    example = load_example("own_loop")
    in_threads(lambda k: example.main(str(made.folder / f"p{k}.toml")), 3)
    outputs = capsys.readouterr().out.splitlines()
    assert len(outputs) == 3
    assert len(set(outputs)) == 1
    np.testing.assert_allclose(json.loads(outputs[0]), [[1.0, -2.0, 0.5]], atol=0.1)


def test_example_of_an_entry_point():
    learner = learner_of(EntryPoint.of("entry_point:make", EXAMPLES).make({"name": "site"}, 0))
    vector = learner.initial()
    for round in (1, 2):
        vector, loss = learner.update(vector, round)
    score = learner.evaluate(vector)
    assert (score.count, learner.samples.train) == (20, 180)
    assert loss < 0.7


def test_check_tells_sites_that_are_not_there_from_sites_that_do_not_fit(federation):
    made = federation(3, protocol="shares", group_size=2)

    alone = CliRunner().invoke(app, ["check", str(made.folder / "p0.toml"), "--open-within=0"])
    assert alone.exit_code == 7, alone.output
    assert "2 of 7 checks failed: p1: does not answer" in alone.stderr
    roster = [dict(entry) for entry in made.values["peers"]]
    roster[1]["fingerprint"] = "0" * 64
    made.write("wrong.toml", peers=roster)
    made.write_peer(0, made.files[0], federation="wrong.toml")
    found = {}

    def work(k):
        found[k] = check(made.folder / f"p{k}.toml", wait=20, within=0)

    in_threads(work, 2)
    # p0 refuses p1, which is told so, and p2 is not there
    assert "shows a certificate with fingerprint" in str(failure(found[0]))
    assert [[finding.lost for finding in found[k][-2:]] for k in (0, 1)] == [[False, True]] * 2, found
    assert [failure(found[k]).exit_code for k in (0, 1)] == [4, 4]


@pytest.mark.parametrize("fits", [True, False])
def test_a_running_peer_tells_them_apart_too(tmp_path, fits):
    (tmp_path / "journal").write_bytes(b"")
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    desk, done = Desk(tmp_path), threading.Event()

    def answer():
        while not done.is_set():
            if desk.new_wish() is not None:
                desk.answer(False, "no link to b", lost=fits)
            time.sleep(0.1)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with pytest.raises(PeerLostError if fits else ConfigError, match="no link to b"):
            want(tmp_path, Wish("look"), 60)
    finally:
        done.set()
        thread.join()
        os.close(lock)


@pytest.mark.parametrize(
    "reason",
    [
        "not yet",
        "a.example.org:7443: no route to host",
        "a.example.org:7443 through the proxy proxy:3128: connection refused",
        "it only dials out, and relay r does not join the two: r.example.org:7443: connection refused",
    ],
)
def test_check_does_not_blame_a_site_for_what_others_refuse(reason):
    assert what_to_do(reason) == ""


def test_check_tells_who_is_there_and_who_differs(federation):
    made = federation(3, protocol="shares", group_size=2)
    alone = check(made.folder / "p0.toml")
    assert {f.subject: f.ok for f in alone} == {
        "federation.toml": True,
        "design": True,
        "privacy": True,
        "own keys": True,
        "state folder": True,
        "app and data": True,
        "p1": False,
        "p2": False,
    }
    assert re.fullmatch(
        r"does not answer: 127\.0\.0\.1:\d+: connection refused; its peer may not run yet: start it there with "
        r"`securedfl peer PEER\.toml`, or check address and firewall",
        alone[-1].text,
    )
    findings = {}

    def work(k):
        findings[k] = check(made.folder / f"p{k}.toml", wait=60)

    in_threads(work, 3)
    assert all(finding.ok for found in findings.values() for finding in found), findings
    assert any("it reaches p0 directly" in finding.text for finding in findings[1]), findings
    made.write("changed.toml", window=5)
    made.write_peer(2, made.files[2], federation="changed.toml")

    def differing(k):
        findings[k] = check(made.folder / f"p{k}.toml", wait=60)

    in_threads(differing, 3)
    assert "window is 5 there and 10 here" in findings[0][-1].text

    # all that is wrong at this site is told at once
    made.write("changed.toml", window=0)
    made.files[1].key.unlink()
    made.write_peer(1, made.files[1], federation="changed.toml")
    assert [(found.subject, found.ok) for found in check(made.folder / "p1.toml")] == [
        ("federation.toml", False),
        ("own keys", False),
        ("state folder", True),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_peer": 3}, "did you mean 'min_peers'"),
        ({"min_peers": 1}, "min_peers"),
        ({"min_peers": 2}, "at least 3 peers must take part"),
        ({"min_peers": 2, "peers_": 0}, "unknown key"),
        ({"train": {"protocl": "grouped"}}, "did you mean 'protocol'"),
        ({"train": {"peers": 4}}, "unknown key 'peers'"),
        ({"deadlines": {"train": -1}}, "deadlines"),
        ({"deadlines": {"trian": 1}}, "did you mean 'train'"),
        ({"train": {"weighted": True}}, "max_weight"),
        ({"peers": [{"name": "Bad Name", "address": "a:1"}] * 2}, "peers"),
        ({"lying": "many"}, "lying"),
        ({"lying": 1}, "3 peers cannot withstand 1 that lie"),
    ],
)
def test_bad_settings_are_named(federation, changes, message):
    made = federation(3, protocol="grouped")
    with pytest.raises(ConfigError, match=message):
        FederationConfig.resolve({**made.values, **changes})


def test_many_peers_get_more_time_between_signs_of_life():
    assert [DeadlineConfig().among(peers)["heartbeat"] for peers in (3, 6, 30)] == [1, 1, 5]
    assert DeadlineConfig(heartbeat=2.0).among(30)["heartbeat"] == 2


def test_an_average_is_never_among_so_few_that_the_colluders_know_the_rest(federation):
    """Of five peers, two colluders: three are more than half, but two of them would know the third's update."""
    values = federation(5, protocol="resilient", group_size=2, collusion=2).values
    config = FederationConfig.resolve(values)
    design = choose_design(config.training)
    averages = make_averages(config, design, Schema.of({"w": np.zeros(3)}))
    assert make_rules(config, design, averages).least == 4
    assert averages.protocol(4, 1).settled.partitions == 3
    with pytest.raises(PrivacyError):
        averages.protocol(3, 1)
    with pytest.raises(ConfigError, match="at least 4 peers must take part"):
        FederationConfig.resolve({**values, "min_peers": 3})


def test_where_nobody_may_be_missing_the_certificate_says_that_all_are_waited_for(federation):
    waits, goes_on = "Over rounds: every average is over all peers", "averages go on without peers that are missing"
    made = federation(3, protocol="shares", group_size=2)
    assert waits in told(pass_federation(FederationConfig.resolve(made.values)))
    added = {"name": "p3", "fingerprint": "3" * 64, "added": True}
    later = FederationConfig.resolve({**made.values, "peers": [*made.values["peers"], added]})
    assert goes_on in told(pass_federation(later))
    peers = [{"name": f"p{k}", "fingerprint": f"{k:064x}"} for k in range(5)]
    values = {"peers": peers, "train": {"protocol": "shares"}}
    assert goes_on in told(pass_federation(FederationConfig.resolve(values)))
    assert waits in told(pass_federation(FederationConfig.resolve({**values, "min_peers": 5})))


def test_bad_rosters_and_peer_files(federation):
    made = federation(3, protocol="grouped")
    entries = made.values["peers"]
    for key in ("name", "address", "fingerprint"):
        twice = [entries[0], {**entries[1], key: entries[0][key]}]
        with pytest.raises(ConfigError, match=f"two peers .* have the {key}"):
            FederationConfig.resolve({**made.values, "peers": twice})
    with pytest.raises(ConfigError, match="HOST:PORT"):
        FederationConfig.resolve({**made.values, "peers": [entries[0], {**entries[1], "address": "nowhere"}]})
    path = made.write_peer(0, made.files[0], extra={"lisen": "x"})
    with pytest.raises(ConfigError, match="did you mean 'listen'"):
        PeerConfig.load(path)


def test_certs_on_the_command_line(tmp_path):
    runner = CliRunner()
    keys = ["--dir", str(tmp_path / "keys")]
    assert runner.invoke(app, ["certs", "init", *keys]).exit_code == 0
    issued = runner.invoke(app, ["certs", "issue", "hospital-a", "--host", "a.example.org", *keys])
    assert 'address = "a.example.org:7443"' in issued.output
    shown = runner.invoke(app, ["certs", "show", *keys], env={"COLUMNS": "200"})
    assert "hospital-a" in shown.output
    assert runner.invoke(app, ["certs", "issue", "Bad", *keys]).exit_code == 4


def test_up_gives_the_numbers_of_train_and_stops_on_interrupt(tmp_path):
    """Real processes reach the accuracy of the simulation; Ctrl-C leaves a usable run folder and no process."""
    training = {"common_optimizer": "nesterov", "proximal": 0.1, "warmup": 1, "gradient_norm": 1.0, "steps": 9}
    settings = ["--peers", "3", "--protocol", "shares", "--group-size", "2"]
    settings += [text for key, value in training.items() for text in (f"--{key.replace('_', '-')}", str(value))]
    up = [sys.executable, "-c", COMMAND, "up", *settings, "--rounds", "400", "--out", str(tmp_path / "up")]
    with subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("round 2/"):
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    summary = json.loads((tmp_path / "up" / "summary.json").read_text())
    assert not summary["finished"]
    assert (tmp_path / "up" / "report.html").exists()
    config = TrainConfig.resolve(
        {
            "peers": 3,
            "protocol": "shares",
            "group_size": 2,
            "rounds": 2,
            "workers": 1,
            "methods": ("secured",),
            "out": str(tmp_path / "train"),
            **training,
        }
    )
    train(config)
    simulated, real = read_rows(tmp_path / "train", Row), read_rows(tmp_path / "up", Row)
    for row, other in zip(simulated, real, strict=False):
        assert (row.round, row.accuracy) == (other.round, other.accuracy)
        assert row.loss == pytest.approx(other.loss, rel=1e-6)


def test_the_live_table_shows_peers_and_their_ends():
    """Peer, round, phase, bytes and last seen; a peer that ended shows how."""
    ended, alive = SimpleNamespace(poll=lambda: 7), SimpleNamespace(poll=lambda: None)
    peers = [
        SimpleNamespace(name="peer-0", status=PeerStatus(), process=alive, seen=0.0, error="", rows={}),
        SimpleNamespace(
            name="peer-1",
            status=PeerStatus("finishing", 3, 1_500_000, 2_000_000),
            process=alive,
            seen=time.monotonic(),
            error="",
            rows={},
        ),
        SimpleNamespace(
            name="peer-2", status=PeerStatus(round=2), process=ended, seen=0.0, error="error: disk full", rows={}
        ),
    ]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table(peers, 20))
    lines = console.export_text().splitlines()
    assert lines[0].split() == ["Peer", "Round", "Phase", "In", "Out", "Last", "seen"]
    assert lines[1].split()[:3] == ["peer-0", "0/20", "starting"]
    assert lines[2].split() == ["peer-1", "3/20", "finishing", "1.5", "MB", "2.0", "MB", "0", "s", "ago"]
    assert "error: disk full" in lines[3]


def test_the_common_optimisers_state_comes_back_after_an_absence_a_restart_and_a_lost_result(federation):
    """It is part of what all peers agree on, so whoever fetches the model goes on with the very same bits."""
    optimizer = CommonOptimizer(kind="adam", learning_rate=0.1, momentum=0.9, adaptivity=0.01)
    made = federation(
        5,
        protocol="resilient",
        common_optimizer="adam",
        common_learning_rate=0.1,
        common_adaptivity=0.01,
        rounds=4,
        deadlines={"absent": 1},
    )
    models = [{"w": np.linspace(0, 1, 6) * k} for k in range(5)]
    together, last = threading.Barrier(5, timeout=50), []

    def train(k, round):
        models[k]["w"] += 0.1 * (k + 1) * (round + 1)

    def work(k):
        path = made.folder / f"p{k}.toml"
        with securedfl.join(path) as peer:
            for round in (0, 1):
                train(k, round)
                peer.average_(models[k])
            if k != 4:
                together.wait()
                train(k, 2)
                peer.average_(models[k])
                assert set(peer.last.members) == {0, 1, 2, 3}
                together.wait()
                together.wait()
                train(k, 3)
                peer.average_(models[k])
                last.append(peer.last)
        if k == 4:
            together.wait()  # it has left, and the others go on without it
            together.wait()
            models[k]["w"][:] = 0
            with securedfl.join(path) as peer:
                assert peer.resume_(models[k])
                peer.average_(models[k])  # too late for round 2: it gets what the others made of it
                assert peer.round == 3
                assert peer.last.fetched
                together.wait()
                train(k, 3)
                peer.average_(models[k])

    in_threads(work, 5)
    for model in models[1:]:
        np.testing.assert_array_equal(model["w"], models[0]["w"])
    assert "array" not in repr(last[0])
    assert len(repr(last[0])) < 400

    # all start again, one of them without its stored results, which it fetches
    for file in (made.folder / "out-p1" / "state" / "results").glob("*.bin"):
        file.unlink()

    def again(k):
        with securedfl.join(made.folder / f"p{k}.toml") as peer:
            assert peer.resume_(models[k])
            assert peer.round == 4
            train(k, 4)
            peer.average_(models[k])
            last.append(peer.last)

    in_threads(again, 5)
    for model in models[1:]:
        np.testing.assert_array_equal(model["w"], models[0]["w"])

    held, everybody = None, (0, 1, 2, 3, 4)
    for round, members in enumerate((everybody, everybody, (0, 1, 2, 3), last[0].members, last[-1].members)):
        starts = [np.linspace(0, 1, 6) * k if held is None else optimizer.model(held) for k in members]
        brought = [start + 0.1 * (k + 1) * (round + 1) for start, k in zip(starts, members, strict=True)]
        held = optimizer.step(held, np.mean(brought, axis=0))
    np.testing.assert_allclose(models[0]["w"], optimizer.model(held), atol=1e-4)
