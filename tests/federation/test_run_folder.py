"""Runs on disk: what is written, resumed with the same numbers, and refused."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from securedfl.errors import ConfigError, InvalidInputError, MissingDependencyError, RunFolderError
from securedfl.federation.config import TrainConfig
from securedfl.federation.observer import Observer
from securedfl.federation.run_folder import checkpoint
from securedfl.federation.run_folder.files import read_ledger
from securedfl.federation.run_folder.folder import RunFolder
from securedfl.federation.run_folder.metrics import Row, read_rows
from securedfl.federation.run_folder.reader import read_run
from securedfl.federation.run_folder.summary import read_summary
from securedfl.federation.settings import read_toml
from securedfl.federation.train import resume, train
from tests.learning.plugin import install

TINY = {
    "model": "linear",
    "optimizer": "adam",
    "learning_rate": 0.01,
    "rounds": 3,
    "methods": "local,secured",
}


class StopAfter(Observer):
    """Stops a run as Ctrl-C does, after a round of a method."""

    def __init__(self, method, round):
        self.at = (method, round)

    def round_finished(self, row):
        if (row.method, row.round) == self.at:
            raise KeyboardInterrupt


def run(out, observer=None, **settings):
    return train(TrainConfig.resolve({**TINY, "out": str(out), **settings}), observer=observer)


def stopped(out, method="secured", round=1, **settings):
    with pytest.raises(KeyboardInterrupt):
        run(out, StopAfter(method, round), **settings)
    return out


def numbers(folder):
    return [replace(row, train_seconds=0.0, average_seconds=0.0) for row in read_rows(folder, Row)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run(folder)
    return folder


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
    np.testing.assert_array_equal(one.held, other.held)
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


# --- what is refused ---------------------------------------------------------------------------------------------


def test_a_run_is_never_overwritten(whole):
    before = numbers(whole)
    with pytest.raises(RunFolderError, match=r"already holds a run; continue it with --resume .*another --out"):
        run(whole)
    assert numbers(whole) == before


def test_a_ledger_is_read_or_told_to_be_none(whole, tmp_path):
    with pytest.raises(RunFolderError, match=r"has no ledger\.json"):
        read_ledger(tmp_path)
    for text in ("{", "[]", "{}", '{"secured": 1}', "3"):
        (tmp_path / "ledger.json").write_text(text)
        with pytest.raises(RunFolderError, match=r"ledger\.json is damaged"):
            read_ledger(tmp_path)
    assert read_ledger(whole)["attempts"] == 4


def test_a_missing_folder_or_a_file_is_an_error(tmp_path):
    with pytest.raises(RunFolderError, match="there is no run to resume"):
        resume(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="is a file, not a folder"):
        run(tmp_path / "file")


def test_changed_settings_are_refused(whole):
    with pytest.raises(RunFolderError, match=r"has batch_size = 32, not 9; resume it without that option"):
        resume(whole, changes={"batch_size": 9})
    with pytest.raises(RunFolderError, match=r"has 3 rounds, more than the 2 asked for"):
        resume(whole, changes={"rounds": 2})


def damage_header(path):
    path.write_bytes(path.read_bytes()[:100])


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def foreign(path):
    safetensors.numpy.save_file({"x": np.zeros(3)}, path)


def tell_another_round(path):
    data = path.read_bytes()
    changed = data.replace(b'\\"round\\": 1', b'\\"round\\": 0')
    assert changed != data
    path.write_bytes(changed)


def _with_checksum(**changes):
    about = {"format": 2, "method": "local", "round": 1, "peers": 9, "identity": {}, **changes}
    return json.dumps({**about, "checksum": checkpoint._checksum(about, {"parameters": np.zeros((1, 3))})})


def tells(text):
    """A checkpoint that says anything about itself."""
    return lambda path: safetensors.numpy.save_file({"parameters": np.zeros((1, 3))}, path, {"securedfl": text})


HOSTILE = [
    tells(text)
    for text in (
        "{",
        "[]",
        "[" * 100_000,
        '{"format": 2}',
        _with_checksum(peers=10**12),
        _with_checksum(peers=float("inf")),
        _with_checksum(identity=5),
    )
]


@pytest.mark.parametrize("damage", [damage_header, flip_a_bit, empty, foreign, tell_another_round, *HOSTILE])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    folder = stopped(tmp_path / "run", "local", 1)
    damage(folder / "checkpoints/local.safetensors")
    with pytest.raises(RunFolderError, match=r"local.safetensors is damaged .*delete it"):
        resume(folder)


def test_edited_files_are_refused(tmp_path):
    folder = stopped(tmp_path / "run", "local", 1)
    config, metrics = folder / "config.toml", folder / "metrics.jsonl"
    original = config.read_text()

    config.write_text(original.replace("seed = 0", "seed = 1"))
    with pytest.raises(RunFolderError, match="belongs to other settings"):
        resume(folder)
    config.write_text(original + "\nsede = 1\n")
    with pytest.raises(RunFolderError, match="cannot be read: unknown key 'sede'"):
        resume(folder)
    config.write_text(original)

    lines = metrics.read_text()
    metrics.write_text("{broken\n" + lines)
    with pytest.raises(RunFolderError, match=r"metrics.jsonl is damaged \(line 1: "):
        resume(folder)
    metrics.write_text(lines.replace('"round": 0', '"round": "0"'))
    with pytest.raises(RunFolderError, match=r"damaged \(line 1: Expected `int`.*round"):
        resume(folder)
    metrics.write_text(lines.replace('"accuracy": ', '"accuracy": "x", "y": '))
    with pytest.raises(RunFolderError, match=r"damaged \(line 1: Expected `float`.*accuracy"):
        resume(folder)
    metrics.write_text(lines.split("\n", 1)[1])
    with pytest.raises(RunFolderError, match="lacks rounds of local"):
        resume(folder)
    (folder / "design.json").unlink()
    with pytest.raises(RunFolderError, match="cannot read the design file"):
        resume(folder)


def test_two_processes_never_share_a_run(whole):
    holder = RunFolder.open(whole)
    try:
        with pytest.raises(RunFolderError, match="another process is working on"):
            resume(whole)
    finally:
        holder.close()


def test_bad_data_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    code = (
        "import numpy as np\n"
        "from securedfl.learning.data.dataset import Dataset\n"
        "from securedfl.learning.data.datasets import Source\n"
        "def load(data_dir, report):\n"
        "    x = np.zeros((100, 1, 8, 8), np.float32)\n"
        "    x[3] = np.nan\n"
        "    return Dataset(name='broken', x=x, y=np.zeros(100, np.int64), classes=10)\n"
        "broken = Source(load=load, about='')\n"
    )
    install(monkeypatch, tmp_path / "site", code, datasets={"broken": "broken"})
    with pytest.raises(InvalidInputError, match="sample 3 of the data set 'broken'"):
        run(tmp_path / "run", dataset="broken")
    with pytest.raises(InvalidInputError, match="200 peers need at least 2000 samples"):
        run(tmp_path / "run", peers=200)
    with pytest.raises(ConfigError, match="unknown model 'lnear'"):
        run(tmp_path / "run", model="lnear")
    assert not (tmp_path / "run").exists()


def test_divergence_leaves_a_run_folder_that_says_so(tmp_path):
    with pytest.raises(InvalidInputError, match="lower learning_rate"):
        run(tmp_path / "run", optimizer="sgd", model="cnn-small", learning_rate=1e6, epochs=4, workers=1)
    assert json.loads((tmp_path / "run/summary.json").read_text())["finished"] is False


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize("error", [FULL, safetensors.SafetensorError("No space left on device (os error 28)")])
def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path, monkeypatch, error):
    def full(*_args, **_options):
        raise error

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(RunFolderError, match=r"local.safetensors: .*No space left on device.*--resume"):
        run(tmp_path / "run")


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv", "summary.json", ".lock"])
def test_a_file_that_cannot_be_written_on_resume_is_named(tmp_path, monkeypatch, name):
    folder = stopped(tmp_path / "run", "local", 1)
    write = Path.open

    def full(path, mode="r", *args, **options):
        if name in path.name and "r" not in mode:
            raise FULL
        return write(path, mode, *args, **options)

    def write_text(path, text, **_options):
        with full(path, "w") as file:
            return file.write(text)

    monkeypatch.setattr(Path, "open", full)
    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(RunFolderError, match=r"cannot write .*: No space left on device; "):
        resume(folder)
    assert list(folder.rglob("*.tmp")) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def refused(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("securedfl.storage.os.open", refused)
    with pytest.raises(RunFolderError, match=r"design.json: Permission denied; choose another --out"):
        run(tmp_path / "run")


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_tensorboard_events_are_written(tmp_path):
    pytest.importorskip("tensorboard")
    run(tmp_path / "run", tensorboard=True, rounds=1, methods="fedavg")
    (events,) = (tmp_path / "run/tensorboard/fedavg").iterdir()
    assert b"accuracy" in events.read_bytes()


def test_missing_tensorboard_is_told_clearly(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'securedfl\[tensorboard\]'"):
        run(tmp_path / "run", tensorboard=True)


def test_interrupting_leaves_no_temporary_files(tmp_path):
    folder = stopped(tmp_path / "run")
    assert list(Path(folder).rglob("*.tmp")) == []


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
