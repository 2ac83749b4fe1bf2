"""Runs on disk: what is written, and resumed with the same numbers."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from securedfl.errors import ConfigError
from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder import checkpoint
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.run_folder.reader import read_run
from securedfl.federation.run_folder.summary import read_summary
from securedfl.federation.settings import read_toml
from securedfl.federation.train import resume
from tests.federation.tiny_runs import TINY, StopAfter, numbers, run, stopped


def test_a_run_leaves_everything_that_is_promised(whole):
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["finished"] is True
    assert (summary["peers"], summary["rounds"], summary["seed"], summary["dataset"]) == (9, 3, 0, "digits")
    assert set(summary["methods"]["secured"]) >= {
        "best_accuracy",
        "final_accuracy",
        "mean_error",
        "bytes_per_peer_per_round",
        "train_seconds",
        "average_seconds",
    }
    assert summary["design"]["gap"] == 4
    assert summary["design"]["hash"] == json.loads((whole / "design.json").read_text())["hash"]
    assert {"python", "torch", "numpy", "securedfl"} <= summary["versions"].keys()
    assert summary["config"].pop("out") == str(whole)
    assert TrainConfig.resolve(summary["config"]) == TrainConfig.resolve(read_toml(whole / "config.toml"))

    rows = read_rows(whole, Row)
    assert [(row.method, row.round) for row in rows] == [(m, r) for m in ("local", "secured") for r in range(4)]
    assert len(rows[0].peer_accuracy) == 9
    assert 0 < rows[-1].error_mse < 1e-10
    with (whole / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(row["accuracy"]) for row in table] == [row.accuracy for row in rows]
    assert table[0]["error_mse"] == ""
    assert sorted(path.name for path in (whole / "checkpoints").iterdir()) == [
        "local.safetensors",
        "secured.safetensors",
    ]


def test_same_seed_same_numbers_and_another_seed_others(whole, tmp_path):
    run(tmp_path / "again")
    run(tmp_path / "other", seed=1)
    assert numbers(tmp_path / "again") == numbers(whole)
    assert numbers(tmp_path / "other") != numbers(whole)


@pytest.mark.parametrize(("method", "round"), [("local", 0), ("local", 2), ("secured", 0), ("secured", 3)])
def test_a_stopped_run_is_usable_and_resumes_with_the_same_numbers(whole, tmp_path, method, round):
    folder = stopped(tmp_path / "run", method, round)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["finished"] is False
    assert summary["methods"][method]["rounds"] == round
    assert (folder / "metrics.csv").exists()

    assert resume(folder).finished
    assert numbers(folder) == numbers(whole)
    first, second = (checkpoint.load(path / "checkpoints/secured.safetensors") for path in (folder, whole))
    np.testing.assert_equal(vars(first), vars(second))


def test_rows_after_the_checkpoint_are_computed_again(whole, tmp_path):
    folder = stopped(tmp_path / "run", "secured", 3, checkpoint_every=2)
    path = folder / "checkpoints/secured.safetensors"
    assert checkpoint.load(path).round == 3
    folder = stopped(tmp_path / "other", "local", 1, checkpoint_every=2)
    assert checkpoint.load(folder / "checkpoints/local.safetensors").round == 0
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"method": "local", "rou')  # a kill in the middle of a line
    resume(folder)
    assert numbers(folder) == numbers(whole)


def test_two_workers_resume_what_one_began(whole, tmp_path):
    folder = stopped(tmp_path / "run", "secured", 1)
    resume(folder, changes={"workers": 2})
    assert numbers(folder) == numbers(whole)


def test_a_killed_process_resumes_with_the_same_numbers(whole, tmp_path):
    folder = tmp_path / "killed"
    code = (
        "import sys; from securedfl.federation.config import TrainConfig; from securedfl.federation.train import train;"
        f"train(TrainConfig.resolve({ {**TINY, 'out': str(folder), 'workers': 1}!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 60
        while not (folder / "checkpoints/local.safetensors").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    resume(folder)
    assert numbers(folder) == numbers(whole)


def test_a_run_is_extended_to_the_numbers_of_a_longer_one(tmp_path):
    settings = {
        "methods": "fedavg,secured",
        "learning_rate_schedule": "cosine",
        "learning_rate_period": 3,
        "warmup": 1,
        "common_optimizer": "adam",
        "proximal": 0.1,
        "gradient_norm": 0.5,
        "steps": 4,
        "bits": 16,
        "local": "1.bias",
    }
    run(tmp_path / "long", **settings, rounds=5)
    run(tmp_path / "short", **settings, rounds=3)
    with pytest.raises(KeyboardInterrupt):  # an extension can be stopped, too
        resume(tmp_path / "short", changes={"rounds": 5}, observer=StopAfter("fedavg", 4))
    extended = resume(tmp_path / "short")
    assert extended.finished
    assert extended.rounds == 5
    assert sorted(numbers(tmp_path / "short"), key=lambda row: (row.method, row.round)) == numbers(tmp_path / "long")
    one, other = (
        checkpoint.load(tmp_path / name / "checkpoints" / "secured.safetensors") for name in ("long", "short")
    )
    assert one.identity == other.identity
    np.testing.assert_array_equal(one.common, other.common)
    np.testing.assert_array_equal(one.parameters, other.parameters)


def test_a_finished_run_resumes_to_the_same_summary(whole):
    before = read_summary(whole)
    assert resume(whole).methods == before.methods


def test_weighted_secret_literal_and_uneven_runs_work(tmp_path):
    summary = run(
        tmp_path / "run",
        methods="fedavg,secured,paper",
        weighted=True,
        masks="secret",
        dealing="dirichlet",
        rounds=1,
    )
    assert 1e-12 < summary.methods["paper"].mean_error < 1e-5  # the authors' schedule: 1.6e-9
    assert summary.methods["fedavg"].mean_error < 1e-12
    assert summary.methods["secured"].mean_error < 1e-12


def test_sixteen_bits_go_on_where_they_stopped(tmp_path):
    """What was rounded off is in the checkpoint, so a resumed run has the numbers of an uninterrupted one."""
    settings = {"methods": "secured", "bits": 16, "beyond": "clip", "range": 0.01, "rounds": 4}
    whole = run(tmp_path / "whole", **settings)

    class Stop(Observer):
        def round_finished(self, row):
            if row.round == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", observer=Stop(), **settings)
    assert resume(tmp_path / "stopped").methods["secured"].final_accuracy == whole.methods["secured"].final_accuracy
    rows, again = (read_rows(tmp_path / name, Row) for name in ("whole", "stopped"))
    assert [(row.loss, row.clipped) for row in rows] == [(row.loss, row.clipped) for row in again]
    assert any(row.clipped for row in rows)
    assert rows[1].bytes_per_peer * 4 == rows[0].bytes_per_peer


def test_settings_that_do_nothing_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="rho is set, but no protocol of this run takes it"):
        run(tmp_path / "run", methods="fedavg,secured", rho=0.5)
    with pytest.raises(ConfigError, match="bits is set"):
        run(tmp_path / "run", methods="paper", bits=16)


def test_federated_methods_agree_and_beat_local(tmp_path):
    summary = run(tmp_path / "run", methods="local,fedavg,secured", model="cnn-small", optimizer="rmsprop",
                  learning_rate=0.002, rounds=8, workers=1)  # fmt: skip
    best = {name: result.best_accuracy for name, result in summary.methods.items()}
    assert abs(best["secured"] - best["fedavg"]) <= 0.02
    assert min(best["secured"], best["fedavg"]) > best["local"]


def test_a_run_of_an_earlier_version_resumes_and_is_read(whole, tmp_path):
    """Its config.toml says partition where ours says dealing; its checkpoints carry the same hash of settings."""
    folder = stopped(tmp_path / "run", "secured", 1)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace('dealing = "even"', 'partition = "even"'))
    with pytest.raises(ConfigError, match=r"'partition' in .*config.toml is called 'dealing' now"):
        TrainConfig.resolve(read_toml(config), where=str(config))
    assert resume(folder).finished
    assert numbers(folder) == numbers(whole)
    assert read_run(folder).settings["dealing"] == "even"


def test_light_parts_do_without_torch():
    modules = ("config", "methods", "observer", "results", "task", "run_folder.folder", "run_folder.reader")
    code = "import sys\n" + "".join(f"import securedfl.federation.{name}\n" for name in modules)
    code += "sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
