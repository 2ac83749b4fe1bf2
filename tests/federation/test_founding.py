"""`securedfl new` and `securedfl federation init`: what they write runs. Starts that fail leave nothing behind."""

import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from securedfl.cli import app as command_line
from securedfl.errors import AppError, ConfigError
from securedfl.federation.founding.files import NewSite, write_federation
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.peers.local import COMMAND
from securedfl.federation.train import train

PLAIN = """
import numpy as np

def make(settings):
    if settings.get("broken"):
        raise RuntimeError("no data here")
    def update(model, data, round):
        model["centre"] += 0.5 * (data.mean() - model["centre"])
    return {"centre": np.zeros(2)}, np.full(10, float(settings["number"])), update
"""


def invoke(*arguments):
    return CliRunner().invoke(command_line, [str(argument) for argument in arguments])


def run_peers(folder, names):
    """Run the peers in processes of their own, as a user does; return what they said."""
    start = [sys.executable, "-c", COMMAND, "peer"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = [subprocess.Popen([*start, f"{name}.toml"], cwd=folder, **pipes, env=os.environ) for name in names]
    try:
        return [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture
def plain(importable):
    return importable("plain_app", PLAIN)


def test_a_federation_from_names_runs(plain):
    result = invoke(
        "federation", "init", "a", "b", "c", "--keys", "--entry=plain_app:make", "--rounds=2", "--data=n={number}"
    )
    assert result.exit_code == 0, result.output
    assert "securedfl peer c.toml" in result.stdout
    assert "learn" in result.stdout.split("Next:")[0]
    assert "securedfl check a.toml --wait 60" in result.stdout
    federation = FederationConfig.load(plain / "federation.toml")
    assert (federation.entry, federation.training.rounds) == ("plain_app:make", 2)
    assert PeerConfig.load(plain / "b.toml").data == {"n": "1"}
    about = (plain / "b.toml").read_text().partition("\n\n")[0]
    assert "under [data] is handed to the app as it is" in about
    assert all(line.startswith("# ") and len(line) <= 120 for line in about.splitlines())
    said = run_peers(plain, "abc")
    assert all("round   2  3 peers" in text for text in said), said
    for name in "abc":
        np.testing.assert_allclose(np.load(plain / "runs" / name / "model.npz")["centre"], 0.75, rtol=1e-6)


def test_between_sites_the_commands_for_keys_are_told_and_fingerprints_filled_in(tmp_path):
    sites = [f"{name}={name}.example.org:7443" for name in ("one", "two", "three")]
    init = ("federation", "init", *sites, "--dir", tmp_path, "--entry", "app:make")
    first = invoke(*init)
    assert first.exit_code == 0, first.output
    assert f"securedfl certs request two --host two.example.org --dir {tmp_path / 'keys'}" in first.stdout
    with pytest.raises(ConfigError, match=r"one in .* has no fingerprint"):
        FederationConfig.load(tmp_path / "federation.toml")
    assert "is there already" in invoke(*init).stderr
    invoke("certs", "init", "--dir", tmp_path / "keys")
    for name in ("one", "two", "three"):
        invoke("certs", "issue", name, "--host", f"{name}.example.org", "--dir", tmp_path / "keys")
    again = invoke(*init, "--replace")
    assert "securedfl peer" in again.stdout
    assert all(peer.fingerprint for peer in FederationConfig.load(tmp_path / "federation.toml").peers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "b", "c"), "where do others reach a?"),
        (("a", "b", "--keys"), "2 peers are too few"),
        (("a", "a", "c", "--keys"), "two peers in the federation have the name a"),
        (("A", "b", "c", "--keys"), "the name 'A' of a site must have small letters"),
        (("a=host", "b", "c", "--keys"), "write HOST:PORT"),
        (("a", "b", "c", "--keys", "--peers=3"), "--peers is nothing that all sites share"),
        (("a", "b", "c", "--keys", "--data=x=1"), "name one with --entry"),
        (("a", "b", "c", "--keys", "--lying=1"), "3 peers cannot withstand 1 that lie"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(tmp_path, arguments, message):
    result = invoke("federation", "init", *arguments, "--dir", tmp_path / "made")
    assert result.exit_code == ConfigError.exit_code or "too few" in message
    assert message in result.stderr
    assert not (tmp_path / "made").exists()


def test_a_new_project_learns_and_its_three_sites_are_ready(tmp_path, monkeypatch):
    result = invoke("new", tmp_path / "trial")
    assert result.exit_code == 0, result.output
    project = tmp_path / "trial"
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(project)
    summary = train("app:make", peers=4, rounds=3, methods="secured", protocol="shares", out=tmp_path / "run")
    sys.modules.pop("app", None)
    assert summary.methods["secured"].final_accuracy > 0.5
    assert summary.methods["secured"].final_common_accuracy > 0.5
    compile((project / "test_app.py").read_text(), "test_app.py", "exec")
    federation = FederationConfig.load(project / "federation.toml")
    for name in ("site-a", "site-b", "site-c"):
        config = PeerConfig.load(project / f"{name}.toml")
        assert config.position(federation) == "abc".index(name[-1])
        assert config.files().key.exists()
        assert name in (project / "README.md").read_text()
    assert "is there already" in invoke("new", project).stderr
    assert "letters, digits" in invoke("new", tmp_path / "my project").stderr


def test_a_start_that_fails_leaves_no_folder(plain):
    (plain / "run").mkdir()
    (plain / "run" / "notes.txt").write_text("mine")

    def failing(settings):
        def update(model, data, round):
            raise RuntimeError("no data here")

        return {"w": np.zeros(1)}, [1], update

    for attempt in range(2):
        with pytest.raises(AppError, match="no data here"):
            train(failing, methods="fedavg", out=plain / f"run-{attempt}")
    # round 0 was reached in both, so they can be looked at and resumed
    assert (plain / "run-0" / "config.toml").exists()

    class UnmadeError(Exception):
        pass

    def unmade(settings):
        if settings["number"] == 2:
            raise UnmadeError
        return {"w": np.zeros(1)}, [1], lambda *_: None

    for out in ("run", "other"):
        with pytest.raises(AppError, match=r"failed at peer-2: UnmadeError\n"):
            train(unmade, methods="fedavg", out=plain / out)
    assert not (plain / "other").exists()
    assert [path.name for path in (plain / "run").iterdir()] == ["notes.txt"]


def test_real_peers_that_all_fail_leave_no_folder(plain):
    result = invoke("up", "--entry=plain_app:make", "--peers=3", "--data=broken=true", "--out", plain / "up")
    assert result.exit_code == AppError.exit_code
    assert "make of plain_app:make failed at peer-" in result.stderr
    assert "RuntimeError: no data here" in result.stderr
    assert 'raise RuntimeError("no data here")' in result.stderr
    assert not (plain / "up").exists()


def test_what_real_peers_have_no_use_for_is_told(plain):
    result = invoke("up", "--methods=local", "--out", plain / "up")
    assert result.exit_code == ConfigError.exit_code
    assert "--methods is for simulations: real peers run the method secured; leave it away" in result.stderr


def test_keys_that_are_there_are_kept(tmp_path):
    sites = [NewSite(name=f"p{k}", address=f"127.0.0.1:{9000 + k}") for k in range(3)]
    first = write_federation(tmp_path, sites, {}, issue=True)
    second = write_federation(tmp_path, sites, {"name": "two"}, issue=True, replace=True)
    assert not first.missing
    kept, again = ([peer.fingerprint for peer in made.federation.peers] for made in (first, second))
    assert kept == again


def test_liars_are_planned_for(tmp_path):
    told = invoke("federation", "init", *"abcd", "--keys", "--lying=1", "--dir", tmp_path).stdout
    assert "A peer that lies can bring it about that another one is missing." in told
    assert FederationConfig.load(tmp_path / "federation.toml").lying == 1


def test_the_host_of_an_ipv6_address_is_named_without_its_brackets(tmp_path):
    sites = ("a=[::1]:7443", "b=h:7443", "c=h:7444")
    printed = invoke("federation", "init", *sites, "--dir", tmp_path).stdout
    assert "certs request a --host ::1 " in printed


def test_a_roster_is_no_longer_than_the_log_can_hold():
    roster = [{"name": f"p{number}", "address": "h:1"} for number in range(257)]
    with pytest.raises(ConfigError, match="peers"):
        FederationConfig.resolve({"peers": roster})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fingerprint": "xyz"}, r"fingerprint = 'xyz' in \[\[peers\]\] number 2 in .*: must be 64 digits and letters"),
        ({"name": "A b"}, r"name = 'A b' in \[\[peers\]\] number 2 in .*: must be small letters, digits and dashes"),
        ({"name": 3}, r"name = 3 in \[\[peers\]\] number 2 in .*: must be text"),
    ],
)
def test_a_mistake_in_the_roster_names_key_and_entry(values, message):
    roster = [{"name": "a", "address": "h:1"}, {"name": "b", "address": "h:2"} | values, {"name": "c"}]
    with pytest.raises(ConfigError, match=message):
        FederationConfig.resolve({"peers": roster})


def test_a_mistake_in_the_deadlines_names_the_key():
    roster = [{"name": name, "address": "h:1"} for name in "abc"]
    with pytest.raises(ConfigError, match=r"train = -1.0 in \[deadlines\] in .*: must be greater than 0"):
        FederationConfig.resolve({"peers": roster, "deadlines": {"train": -1}})


def test_what_only_a_simulation_keeps_is_not_shared():
    roster = [{"name": f"p{number}", "address": "h:1"} for number in range(3)]
    with pytest.raises(ConfigError, match="keep_updates"):
        FederationConfig.resolve({"peers": roster, "train": {"keep_updates": 1}})


def test_sites_that_only_dial_out_are_written_and_run(plain):
    init = ("federation", "init", "a", "b=none", "c=none", "--keys", "--entry=plain_app:make", "--rounds=1")
    result = invoke(*init, "--data=n={number}")
    assert result.exit_code == 0, result.output
    assert "Only dialling out: b, c." in result.stdout
    federation = FederationConfig.load(plain / "federation.toml")
    assert [peer.listens for peer in federation.roster] == [True, False, False]
    assert [PeerConfig.load(plain / f"{name}.toml").listen for name in "abc"] == [None, False, False]
    said = run_peers(plain, "abc")
    assert all("round   1  3 peers" in text for text in said), said


def test_sites_that_only_dial_out_have_no_host_in_their_commands_and_need_a_relay_if_all_do(tmp_path):
    some = invoke("federation", "init", "a=h:1", "b=none", "c=none", "--dir", tmp_path / "some", "--entry=app:make")
    assert f"certs request b --dir {tmp_path / 'some' / 'keys'}" in some.stdout
    none = invoke("federation", "init", "a=none", "b=none", "c=none", "--dir", tmp_path / "none", "--entry=app:make")
    assert none.exit_code == 0, none.output
    assert "name it under [[relays]]" in none.stdout


def test_fingerprints_as_other_tools_write_them_are_the_same(tmp_path):
    roster = [{"name": name, "address": f"h:{n}", "fingerprint": f"{n:064x}"} for n, name in enumerate("abc", 1)]
    colons = ":".join(["00"] * 31 + ["0A"])
    roster[0]["fingerprint"] = colons
    assert FederationConfig.resolve({"peers": roster}).roster[0].fingerprint == f"{10:064x}"
