"""Settings of federations and sites, and a whole federation on one machine by `securedfl up`."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.cli.up import table
from securedfl.errors import ConfigError, PrivacyError
from securedfl.federation.config import TrainConfig
from securedfl.federation.methods import choose_design
from securedfl.federation.peers.config import DeadlineConfig, FederationConfig, PeerConfig
from securedfl.federation.peers.events import PeerStatus
from securedfl.federation.peers.local import COMMAND
from securedfl.federation.peers.rules import make_averages, make_rules
from securedfl.federation.peers.site import pass_federation
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.train import train
from securedfl.network.core.entries import Begin, Line
from securedfl.network.core.state import refusal
from securedfl.parameters import Schema
from securedfl.privacy.run_certificate import told


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


def test_sites_are_added_where_min_peers_is_just_more_than_half(federation):
    """The rule is about the roster that the run begins with: no file keeps a site out that the log lets in."""
    made = federation(5, protocol="resilient", group_size=2)
    added = [{"name": name, "fingerprint": digit * 64, "added": True} for name, digit in (("p5", "5"), ("p6", "6"))]
    values = {**made.values, "min_peers": 3, "peers": [*made.values["peers"], *added]}
    config = FederationConfig.resolve(values)
    assert config.hash == FederationConfig.resolve({**made.values, "min_peers": 3}).hash
    for wrong in (2, 6):
        with pytest.raises(ConfigError, match="more than half of the 5 peers that the run begins with"):
            FederationConfig.resolve({**values, "min_peers": wrong})
    # and of a roster that has grown, half or less never average: two parts of a cut network cannot both
    averages = make_averages(config, config.design, Schema.of({"w": np.zeros(3)}))
    rules = make_rules(config, config.design, averages)
    first = config.genesis()
    lines = (*first.roster, *(Line(k, f"p{k}", "", b"k") for k in (5, 6)))
    grown = replace(first, roster=tuple(replace(line, incarnation="folder") for line in lines), length=9)
    assert rules.least == 3
    assert refusal(grown, Begin(0, 0, (0, 1, 2)), rules) == "these are too few, or the rules exclude them"
    assert refusal(grown, Begin(0, 0, (0, 1, 2, 3)), rules) == ""


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
    """Real processes reach the accuracy of the simulation; Ctrl-C leaves a usable run folder and no process.

    Rounds that an operator added meanwhile count: on the screen, in the summary and in the certificate.
    """
    training = {"common_optimizer": "nesterov", "proximal": 0.1, "warmup": 1, "gradient_norm": 1.0, "steps": 9}
    settings = ["--peers", "3", "--protocol", "shares", "--group-size", "2"]
    settings += [text for key, value in training.items() for text in (f"--{key.replace('_', '-')}", str(value))]
    up = [sys.executable, "-c", COMMAND, "up", *settings, "--rounds", "400", "--out", str(tmp_path / "up")]
    with subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("round 2/400"):
                extend = ["extend", str(tmp_path / "up" / "federation" / "peer-0.toml"), "--rounds", "9000"]
                assert CliRunner().invoke(app, extend).exit_code == 0
            if "/9000 " in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    summary = json.loads((tmp_path / "up" / "summary.json").read_text())
    assert not summary["finished"]
    assert summary["rounds"] == 9000
    assert json.loads((tmp_path / "up" / "certificate.json").read_text())["rounds"] == 9001
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
            status=PeerStatus("finishing", 3, 1_500_000, 2_000_000, 30),
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
    assert lines[2].split() == ["peer-1", "3/30", "finishing", "1.5", "MB", "2.0", "MB", "0", "s", "ago"]
    assert "error: disk full" in lines[3]
