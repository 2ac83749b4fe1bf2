"""The command line as a user meets it: output, exit codes, messages."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import securedfl
from securedfl.cli import app
from securedfl.cli.options import PANELS, parse
from securedfl.cli.progress import LineProgress, LiveProgress, headline, progress_on
from securedfl.cli.train import tell
from securedfl.federation.config import TrainConfig
from securedfl.federation.run_folder.metrics import Row

SECUREDFL = Path(sys.executable).with_name("securedfl")
TINY = ["--model", "linear", "--rounds", "1", "--methods", "local,secured"]


def invoke(*arguments, **environment):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "100", **environment})


@pytest.fixture(autouse=True)
def _quick_report(request, monkeypatch):
    if "real_report" not in request.fixturenames:
        monkeypatch.setattr("securedfl.reporting.report.write_report", lambda path: path)


@pytest.fixture
def real_report():
    """Ask for the report as users get it."""


def test_train_prints_rounds_a_table_and_the_report(tmp_path, real_report):
    result = invoke("train", *TINY, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "SecureD-FL round 1/1  accuracy 0." in result.output
    assert "Best Test Accuracy" in result.output
    assert f"Report: {tmp_path / 'run' / 'report.html'}" in result.output
    assert "</html>" in (tmp_path / "run" / "report.html").read_text()
    assert invoke("report", tmp_path / "run").output.strip() == str(tmp_path / "run" / "report.html")


def test_json_prints_the_summary_and_nothing_else(tmp_path):
    result = invoke("train", *TINY, "--out", tmp_path / "run", "--json")
    assert json.loads(result.stdout) == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "round 1/1" in result.stderr


def test_options_go_before_the_file(tmp_path):
    (tmp_path / "c.toml").write_text('peers = 12\nrounds = 1\nmethods = ["paper"]\nmodel = "linear"\nseed = 3\n')
    result = invoke("train", tmp_path / "c.toml", "--peers", 6, "--rho", "3,0.5,2", "--json", "--out", tmp_path / "run")
    config = json.loads(result.stdout)["config"]
    assert (config["peers"], config["seed"], config["methods"]) == (6, 3, ["paper"])
    assert config["rho"] == {"start": 3, "decay": 0.5, "period": 2}


def test_the_default_folder_is_named_after_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("train", *TINY, "--peers", 12).exit_code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("digits-12-")


def test_two_runs_that_begin_in_one_second_have_two_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20260102-030405")
    for _ in range(3):
        result = invoke("train", *TINY)
        assert result.exit_code == 0, result.output
    assert sorted(folder.name for folder in Path("runs").iterdir()) == [
        "digits-9-20260102-030405",
        "digits-9-20260102-030405-2",
        "digits-9-20260102-030405-3",
    ]


def test_the_settings_of_a_run_start_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("train", *TINY, "--out", tmp_path / "first").exit_code == 0
    result = invoke("train", tmp_path / "first" / "config.toml")
    assert result.exit_code == 0, result.output
    assert len(list(Path("runs").iterdir())) == 1


def test_every_setting_is_an_option():
    result = invoke("train", "--help", COLUMNS="200")
    for name in TrainConfig.model_fields:
        assert f"--{name.replace('_', '-')}" in result.output
    assert "securedfl train --resume" in result.output
    assert PANELS.keys() <= TrainConfig.model_fields.keys()
    order = [result.output.index(f"─ {panel} ─") for panel in PANELS.values()]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--peers", "x"], 2, "valid integer"),
        (["--nope"], 2, "No such option"),
        (
            ["--peers", "500"],
            3,
            "500 peers need at least 5000 samples (10 each, so that a tenth is a whole test sample)",
        ),
        (["--dataset", "digit"], 4, "did you mean 'digits'?"),
        (["--methods", "fedvg"], 4, "unknown method 'fedvg'; did you mean 'fedavg'?"),
        (["--rho", "1,2"], 4, "give a number, or START,DECAY,PERIOD"),
        (["--workers", "many"], 4, "workers = 'many' in the options: must be 'auto' or a whole number"),
        (["--workers", "-1"], 4, "workers = -1 in the options: must be 'auto' or greater than or equal to 1"),
        (["--engine", "rays"], 4, "engine = 'rays' in the options: must be 'local' or 'ray'"),
        (["--address", "auto"], 4, 'is that of a Ray cluster; set engine to "ray", too'),
        (["--methods", ""], 4, "must be at least one name"),
        (["--seed", "99999999999999999999999"], 4, "must be less than 9223372036854775808"),
        (["--dealing", "natural"], 4, "does not say whom its samples are from"),
        (["missing.toml"], 4, "cannot read the configuration missing.toml"),
        (["--design", "missing.json"], 5, "cannot read the design file"),
        (["--resume", "missing"], 8, "there is no run to resume in missing"),
        (["--resume", "missing", "--out", "x"], 4, "leave --out away"),
    ],
)
def test_errors_are_one_line_with_their_exit_code(tmp_path, monkeypatch, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    result = invoke("train", *arguments)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback():
    result = invoke("train", "--dataset", "nope", SECUREDFL_DEBUG="1")
    assert isinstance(result.exception, securedfl.SecuredFLError)
    assert isinstance(invoke("--debug", "train", "--dataset", "nope").exception, securedfl.SecuredFLError)


def test_unknown_keys_in_a_file_name_file_and_nearest_key(tmp_path):
    (tmp_path / "c.toml").write_text("lerning_rate = 0.1\n")
    result = invoke("train", tmp_path / "c.toml")
    assert result.exit_code == 4
    assert f"unknown key 'lerning_rate' in {tmp_path / 'c.toml'}; did you mean 'learning_rate'?" in result.stderr


def test_version():
    assert invoke("--version").output == f"securedfl {securedfl.__version__}\n"


def test_help_does_not_import_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from securedfl.cli import app;"
        "assert CliRunner().invoke(app, ['train', '--help']).exit_code == 0; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_stays_usable_and_its_exit_code_is_130(tmp_path, stop):
    folder = tmp_path / "run"
    arguments = ["train", "--model", "linear", "--rounds", "1000", "--methods", "secured", "--workers", "2"]
    arguments += ["--out", str(folder)]
    process = subprocess.Popen([SECUREDFL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (folder / "checkpoints" / "secured.safetensors").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, stop)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert f"Continue with: securedfl train --resume {folder}" in output
    assert "Traceback" not in output
    assert "Warning" not in output
    assert json.loads((folder / "summary.json").read_text())["finished"] is False
    assert (folder / "report.html").exists()


def test_a_run_that_fails_leaves_summary_and_report(tmp_path, real_report):
    folder = tmp_path / "run"
    diverging = ["--optimizer", "sgd", "--learning-rate", "1e6", "--epochs", "4", "--methods", "secured"]
    result = invoke("train", *diverging, "--rounds", 2, "--out", folder)
    assert result.exit_code == 3
    assert "lower learning_rate" in result.stderr
    assert json.loads((folder / "summary.json").read_text())["finished"] is False
    assert "unfinished" in (folder / "report.html").read_text()


def test_the_report_of_another_run_is_left_alone(tmp_path, real_report):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.toml", "report.html"):
        (folder / name).write_text("of another run")
    assert invoke("train", *TINY, "--out", folder).exit_code == 8
    assert (folder / "report.html").read_text() == "of another run"


def test_output_that_cannot_be_written_is_one_line():
    for arguments in (["design", "9"], ["train", "--help"], ["design", "9", "--json"]):
        with Path("/dev/full").open("w") as full:
            result = subprocess.run(
                [SECUREDFL, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert result.returncode == 1
        assert result.stderr == "error: cannot write the output: No space left on device\n"


def test_a_closed_pipe_is_silent():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [SECUREDFL, "design", "9"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


def test_a_terminal_without_unicode_gets_question_marks():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        [SECUREDFL, "train", "--help"], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()


def test_ctrl_c_while_commands_load_has_no_traceback():
    code = (
        "import sys; from securedfl.cli import main; import securedfl.cli, builtins; load = builtins.__import__\n"
        "def stop(name, *rest):\n"
        "    if name == 'securedfl.cli.commands': raise KeyboardInterrupt\n"
        "    return load(name, *rest)\n"
        "builtins.__import__ = stop; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (130, "stopped\n")


def test_progress_fits_80_columns_and_lines_align(tmp_path):
    config = TrainConfig.resolve({"methods": "local,shares", "rounds": 100, "peers": 15})
    row = Row(method="shares", round=100, accuracy=1.0, loss=1.0, train_seconds=1.0, average_seconds=0.5)
    for terminal in (True, False):
        with (
            (tmp_path / "out").open("w") as file,
            progress_on(Console(file=file, force_terminal=terminal, width=80)) as progress,
        ):
            progress.started(tmp_path, config, 1)
            for method in config.methods:
                progress.method_started(method, None)
                progress.peers_trained(15)
                progress.round_finished(replace(row, method=method))
                progress.method_finished(method)
        text = (tmp_path / "out").read_text()
        assert "SecureD-FL shares" in text
        assert "…" not in text
        if not terminal:
            assert len({line.index("round 100/100") for line in text.splitlines()[1:]}) == 1


def test_lines_of_an_app_without_scores_have_none(capsys):
    row = Row(method="shares", round=1, accuracy=math.nan, loss=math.nan, train_seconds=1.0, average_seconds=0.5)
    progress = LineProgress(Console(emoji=False))
    progress.round_finished(row)
    assert "nan" not in capsys.readouterr().out


def test_numbers_of_the_last_table_are_never_cut_off(tmp_path):
    summary = securedfl.train(peers=9, rounds=1, methods="local,shares", held_back=0.1, out=tmp_path / "run")
    with (tmp_path / "out").open("w") as file:
        tell(summary, Console(file=file, width=40), as_json=False)
    text = (tmp_path / "out").read_text()
    assert "…" not in text
    assert "Common" in text
    assert "Averaging" in text


def test_one_round_is_singular(tmp_path):
    assert "9 peers, 1 round, seed 0" in headline(tmp_path, TrainConfig.resolve({"rounds": 1}), 1)


def test_a_design_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    def full(*_args):
        yield "{"
        raise OSError(28, "No space left on device")

    path = tmp_path / "design.json"
    assert invoke("design", 9, "--out", path).exit_code == 0
    before = path.read_text()
    monkeypatch.setattr("securedfl.designs.Design.json_pieces", full)
    result = invoke("design", 12, "--out", path)
    assert result.exit_code == 8
    assert f"cannot write {path}: No space left on device" in result.stderr
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == before


def test_a_design_of_too_many_peers_is_refused():
    result = invoke("design", 10_000_000_000)
    assert result.exit_code == 5
    assert "the largest has 20000 peers" in result.stderr


def test_progress_is_live_on_a_terminal_and_plain_elsewhere(tmp_path):
    config = TrainConfig.resolve({"methods": "secured", "rounds": 2})
    numbers = {"accuracy": 0.5, "loss": 1.0, "error_mse": 1e-13, "train_seconds": 1.0, "average_seconds": 0.5}
    row = Row(method="secured", round=1, **numbers)
    for terminal, kind in ((True, LiveProgress), (False, LineProgress)):
        with (tmp_path / "out").open("w") as file:
            console = Console(file=file, force_terminal=terminal, width=120)
            with progress_on(console) as progress:
                assert isinstance(progress, kind)
                progress.started(tmp_path, config, 1)
                progress.method_started("secured", None)
                progress.peers_trained(9)
                progress.round_finished(row)
                progress.method_finished("secured")
        text = (tmp_path / "out").read_text()
        assert "SecureD-FL" in text
        assert ("50.00 %" in text) == terminal
        assert ("accuracy 0.5000  loss 1.0000  error 1.0e-13  1.50 s" in text) != terminal


def test_options_become_what_a_file_would_hold_by_the_types_of_their_fields():
    given = {"group_size": "4", "workers": "auto", "bits": "16", "steps": "5", "range": "1"}
    assert parse({**given, "label": "7", "user": None, "rho": "3,0.1,2"}) == {
        "group_size": 4,
        "workers": "auto",
        "bits": 16,
        "steps": 5,
        "range": 1.0,
        "label": "7",
        "rho": {"start": 3.0, "decay": 0.1, "period": 2},
    }
    assert parse({"bits": "many"}) == {"bits": "many"}
