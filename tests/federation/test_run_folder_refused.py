"""Runs on disk: what is refused, damaged or cannot be written."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from securedfl.errors import ConfigError, InvalidInputError, MissingDependencyError, RunFolderError
from securedfl.federation.run_folder import checkpoint
from securedfl.federation.run_folder.files import read_certificates, read_ledgers
from securedfl.federation.run_folder.folder import RunFolder
from securedfl.federation.run_folder.summary import read_summary
from securedfl.federation.train import resume
from tests.federation.tiny_runs import numbers, run, stopped
from tests.learning.plugin import install


def test_a_run_is_never_overwritten(whole):
    before = numbers(whole)
    with pytest.raises(RunFolderError, match=r"already holds a run.*`securedfl train --resume .*--out"):
        run(whole)
    assert numbers(whole) == before


def test_a_ledger_is_read_or_told_to_be_none(whole, tmp_path):
    with pytest.raises(RunFolderError, match=r"has no ledger\.json"):
        read_ledgers(tmp_path)
    for text in ("{", "[]", "{}", '{"secured": 1}', "3"):
        (tmp_path / "ledger.json").write_text(text)
        with pytest.raises(RunFolderError, match=r"ledger\.json is damaged"):
            read_ledgers(tmp_path)
    assert read_ledgers(whole)[""].attempts == 4


def test_a_missing_folder_or_a_file_is_an_error(tmp_path):
    with pytest.raises(RunFolderError, match="there is no run to resume"):
        resume(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="is a file, not a folder"):
        run(tmp_path / "file")


@pytest.mark.parametrize("sign", ["state/journal", "peer.log"])
def test_the_folder_of_a_real_peer_is_made_whole_by_starting_it_again(tmp_path, sign):
    """It has no config.toml, and its state may have been moved away."""
    (tmp_path / sign).parent.mkdir(exist_ok=True)
    (tmp_path / sign).touch()
    for read, name in ((read_certificates, "certificate.json"), (read_summary, "summary.json")):
        with pytest.raises(RunFolderError, match=rf"has no {name}: start its peer again \(`securedfl peer`\)"):
            read(tmp_path)
        (tmp_path / name).write_text("{")
        with pytest.raises(RunFolderError, match=rf"{name} is damaged .*start this peer again") as damaged:
            read(tmp_path)
        assert "config.toml" not in str(damaged.value)


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


HOSTILE = {
    "not JSON": "{",
    "a list": "[]",
    "deep": "[" * 100_000,
    "too little": '{"format": 2}',
    "many peers": _with_checksum(peers=10**12),
    "endless peers": _with_checksum(peers=float("inf")),
    "no identity": _with_checksum(identity=5),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_checkpoint_that_says_anything_about_itself_is_refused(tmp_path, text):
    path = tmp_path / "local.safetensors"
    safetensors.numpy.save_file({"parameters": np.zeros((1, 3))}, path, {"securedfl": text})
    with pytest.raises(RunFolderError, match=r"local.safetensors is damaged .*delete it"):
        checkpoint.load(path)


@pytest.mark.parametrize("damage", [damage_header, flip_a_bit, empty, foreign, tell_another_round])
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
    metrics.write_bytes(b"\xff\n" + lines.encode())
    with pytest.raises(RunFolderError, match=r"not UTF-8 text\); restore it from a copy, or repeat the run with"):
        resume(folder)
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
    with pytest.raises(RunFolderError, match=r"local.safetensors: .*No space left.*; free some space.*--resume"):
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
