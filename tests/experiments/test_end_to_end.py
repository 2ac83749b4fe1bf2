"""Every experiment from the command line, on made-up data: numbers, files, figures, reuse and resumption."""

import csv
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from securedfl import average
from securedfl.designs import best
from securedfl.designs.algorithm2 import randomized
from securedfl.experiments import groups
from securedfl.experiments.figures import Counted
from securedfl.experiments.presets import read_preset
from securedfl.federation.run_folder.reader import read_run
from securedfl.federation.train import train
from securedfl.protocols.admm import AUTHORS
from securedfl.protocols.randomness import InsecureSeededDraw
from tests.experiments.made_up_runs import invoke

TINY = ("--scale", "users=1,width=0.1", "--workers", "1", "--peers", "9")
SUFFIX = "-rounds0.02-width0.1"


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def files(out, name):
    return {path.suffix for path in out.glob(f"{name}.*")}


def test_table_then_curves_on_all_data_sets(reproduce, tmp_path, monkeypatch):
    result = reproduce("table", *TINY, "--rounds", 1, "--out", tmp_path)
    assert "Run 3 of 3: training cifar10, 9 peers, seed 0 (scaled: 1 of 50 rounds, layers 0.1" in result.output
    assert "FEMNIST, 9 peers, scaled" in result.output
    assert files(tmp_path, "table") == {".csv", ".json", ".md"}
    rows = read_csv(tmp_path / "table.csv")
    assert len(rows) == 15
    for row in rows:
        run = read_run(tmp_path / "runs" / f"{row['dataset']}-9-seed0{SUFFIX}")
        method = run.method(row["method"])
        assert float(row["best_accuracy"]) == max(r.accuracy for r in method.rounds) == method.best_accuracy
        assert float(row["final_accuracy"]) == method.final_accuracy
        assert row["scaled"] == "1 of 50 rounds, layers 0.1 times as wide"
    record = json.loads((tmp_path / "table.json").read_text())
    assert record["command"] == "securedfl reproduce table --scale users=1,width=0.1 --peers 9 --rounds 1"
    assert (record["paper"], record["seeds"], record["settings"]["rounds"]) == ("Table 2", [0], 50)
    assert {"securedfl", "python", "numpy", "torch"} <= record["versions"].keys()

    monkeypatch.setattr("securedfl.federation.train.train", lambda *_: pytest.fail("trained again"))
    result = reproduce("curves", *TINY, "--rounds", 1, "--out", tmp_path)
    assert "Reused 3 finished runs" in result.output
    assert files(tmp_path, "curves") == {".csv", ".json", ".md", ".svg", ".png"}
    assert len(read_csv(tmp_path / "curves.csv")) == 3 * 5 * 2
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    reproduce("curves", *TINY, "--rounds", 1, "--out", tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    page = (tmp_path / "report.html").read_text()
    assert page.count("<section") == 2
    assert "Some results are scaled" in page
    assert page.count('<figure class="card chart">') == 3
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_iterations_measures_what_an_independent_computation_gives(reproduce, tmp_path, monkeypatch):
    result = reproduce("iterations", *TINY, "--rounds", 6, "--out", tmp_path)
    assert "The peers' parameters take" in result.output
    folder = tmp_path / "runs" / "updates-femnist-9-seed0-rounds0.12-width0.1"
    rows = load_file(folder / "updates" / "fedavg-5.safetensors")["parameters"]
    assert [path.name for path in (folder / "updates").iterdir()] == ["fedavg-5.safetensors"]
    assert rows.shape[0] == 9
    assert len({row.tobytes() for row in rows}) == 9  # before averaging peers differ

    data = json.loads((tmp_path / "iterations.json").read_text())["data"]
    mse = data["cells"][0]["mse"][0]
    true = rows.astype(np.float64).mean(axis=0)
    for dtype in ("float32", "float64"):
        for count, rho in AUTHORS.items():
            mean = average(
                list(rows.astype(dtype)),
                protocol="paper",
                design=best(9, 3, 0),
                round=5,
                rho=rho,
                iterations=count,
                finish="literal",
                draws=lambda peer, offset: InsecureSeededDraw(0, peer=peer, round=5, offset=offset),
            )
            assert mse[f"literal {dtype}"][str(count)] == [float(((mean - true) ** 2).mean())]
    assert mse["exact float64"]["2"][0] < 1e-28 < mse["exact float32"]["2"][0] < mse["literal float32"]["2"][0]
    assert mse["shares float32"][""][0] < 1e-14
    assert files(tmp_path, "iterations") == {".csv", ".json", ".md", ".svg", ".png"}
    assert "6.5 × 10⁻³" in (tmp_path / "iterations.md").read_text()

    before = (tmp_path / "iterations.csv").read_bytes()
    result = reproduce("iterations", *TINY, "--rounds", 6, "--tidy", "--out", tmp_path)
    assert "Deleted" in result.output
    assert not (folder / "updates").exists()
    assert (tmp_path / "iterations.csv").read_bytes() == before
    (folder / "averaging.json").unlink()
    assert "does not hold the peers' parameters" in invoke("iterations", "--no-train", "--out", tmp_path).output


def test_accuracy_by_iterations(reproduce, tmp_path):
    reproduce("accuracy", *TINY, "--rounds", 1, "--out", tmp_path)
    rows = read_csv(tmp_path / "accuracy.csv")
    assert [r["iterations"] for r in rows if r["round"] == "1"] == [
        "1",
        "2",
        "exact",
        "3",
        "4",
        "5",
        "6",
        "7",
    ]
    for row in rows:
        count = {"exact": "2"}.get(row["iterations"], row["iterations"])
        run = read_run(tmp_path / "runs" / f"accuracy-femnist-9-seed0-iterations{count}-rounds0.02-width0.1")
        method = run.method("secured" if row["iterations"] == "exact" else "paper")
        assert float(row["accuracy"]) == method.rounds[int(row["round"])].accuracy
    assert files(tmp_path, "accuracy") == {".csv", ".json", ".md", ".svg", ".png"}


def test_a_stopped_experiment_goes_on_with_resume_and_ends_with_the_same_numbers(reproduce, tmp_path, monkeypatch):
    arguments = ("table", *TINY, "--rounds", 2, "--datasets", "femnist")
    reproduce(*arguments, "--out", tmp_path / "whole")

    def stopped(config, observer):
        def stop(row):
            if row.method == "fedavg" and row.round == 1:
                raise KeyboardInterrupt

        observer.round_finished = stop
        return train(config, observer=observer)

    with monkeypatch.context() as patch:
        patch.setattr("securedfl.federation.train.train", stopped)
        result = reproduce(*arguments, "--out", tmp_path / "cut", code=130)
    assert "Continue with: securedfl reproduce table --scale users=1,width=0.1" in result.output
    assert "--resume" in result.output
    result = reproduce(*arguments, "--out", tmp_path / "cut", code=8)
    assert "is unfinished; continue it with --resume" in result.output
    reproduce(*arguments, "--out", tmp_path / "cut", "--resume")
    for name in ("table.csv", "table.md"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_estimate_measures_and_trains_nothing(reproduce, tmp_path):
    result = reproduce(
        "table", *TINY, "--rounds", 4, "--datasets", "femnist", "--out", tmp_path, "--estimate", "--json"
    )
    told = json.loads(result.stdout)
    (run,) = told["runs"]
    assert run["round"]["averages"].keys() == {"local", "fedavg", "paper", "secured", "shares"}
    one = run["round"]["train"] + run["round"]["score"]
    expected = 4 * (5 * one + sum(run["round"]["averages"].values()))
    assert told["seconds"] == run["seconds"] == pytest.approx(expected)
    assert run["round"]["train"] > 0
    assert not any(tmp_path.iterdir())


def test_an_estimate_tells_which_data_sets_are_missing_and_measures_the_others(hub_folder, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "femnist").symlink_to(hub_folder / "femnist")
    arguments = (
        "table",
        *TINY,
        "--rounds",
        4,
        "--out",
        tmp_path / "out",
        "--data-dir",
        tmp_path / "data",
        "--estimate",
    )
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    for name in ("shakespeare", "cifar10"):
        assert (
            f"{name}: 1 run could not be measured: the data folder {tmp_path / 'data'} has no folder '{name}'" in words
        )
    assert "put those of flwrlabs/shakespeare there" in words
    assert ", without those that could not be measured" in words

    told = json.loads(invoke(*arguments, "--json").stdout)
    femnist, *others = told["runs"]
    assert told["seconds"] == femnist["seconds"] > 0
    assert femnist["error"] is None
    assert [(one["seconds"], one["round"]) for one in others] == [(None, None)] * 2
    assert "has no folder 'cifar10'" in others[1]["error"]


def test_an_estimate_without_any_of_the_data_sets_is_an_error_that_names_them_all(tmp_path):
    result = invoke("table", *TINY, "--out", tmp_path / "out", "--data-dir", tmp_path, "--estimate")
    assert result.exit_code == 4
    for name in ("femnist", "shakespeare", "cifar10"):
        assert f"{name}: 1 run could not be measured: the data folder" in result.stderr


def test_groups_counts_partitions(reproduce, tmp_path):
    result = reproduce("groups", "--most", 12, "--seeds", "0-2", "--out", tmp_path, "--json")
    record = json.loads(result.stdout)
    for row in record["data"]["rows"]:
        n, s = row["peers"], row["group_size"]
        assert row["randomized"] == [randomized(n, s, seed).gap for seed in range(3)]
        assert row["best"] == best(n, s, 0).gap <= row["bound"] <= (n - 1) // (s - 1)
    assert [(r["group_size"], r["peers"]) for r in record["data"]["rows"]] == [
        (3, 6),
        (3, 9),
        (3, 12),
        (4, 8),
        (4, 12),
    ]
    assert record == json.loads((tmp_path / "groups.json").read_text())
    assert len(read_csv(tmp_path / "groups.csv")) == 15
    assert files(tmp_path, "groups") == {".csv", ".json", ".md", ".svg", ".png"}
    page = (tmp_path / "report.html").read_text()
    assert reproduce("report", "--out", tmp_path).output.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page
    assert "--most" in reproduce("groups", "--most", 7, "--out", tmp_path, code=4).output


def test_partitions_that_fall_are_told():
    rows = [Counted(3, n, [gap], best=1, bound=2) for n, gap in ((6, 5), (9, 4), (12, 3))]
    result = groups.present(groups.GroupsData(rows, seeds=[0], most=60))
    assert [finding.verdict for finding in result.findings] == ["differs", "holds", "differs"]


def test_no_verdict_changes_with_the_number_of_peers_asked_for():
    growing = [Counted(3, n, [n // 3, n // 3 + 1], best=n, bound=n) for n in range(6, 61, 3)]
    beyond = [Counted(3, n, [1, 1], best=0, bound=n) for n in range(63, 151, 3)]
    told = [
        [finding.verdict for finding in groups.present(groups.GroupsData(rows, seeds=[0, 1], most=most)).findings]
        for rows, most in ((growing, 60), (growing + beyond, 150), (growing[:3], 12))
    ]
    assert told == [["holds", "holds", "holds"]] * 2 + [["not measured", "holds", "not measured"]]


def test_all_shows_what_is_there_without_training(reproduce, tmp_path, monkeypatch):
    monkeypatch.setattr("securedfl.cli.reproduce.read_preset", _few_peers)
    result = reproduce("all", "--no-train", "--out", tmp_path, "--json")
    assert [record["experiment"] for record in json.loads(result.stdout)] == [
        "table",
        "curves",
        "iterations",
        "accuracy",
        "groups",
        "privacy",
    ]
    assert (tmp_path / "report.html").read_text().count("<section") == 6


def _few_peers(name):
    preset = read_preset(name)
    return preset.model_copy(update={"most": 9, "seeds": (0,)}) if name == "groups" else preset


def test_errors_say_what_to_do(reproduce, tmp_path):
    assert "did you mean 'femnist'" in reproduce("table", "--datasets", "femnis", code=4).output
    assert "--scale 3" in reproduce("table", "--scale", "3", code=4).output
    assert "no results in" in reproduce("report", "--out", tmp_path, code=8).output
    (tmp_path / "table.json").write_text('{"data": {}}')
    assert "table --no-train" in reproduce("report", "--out", tmp_path, code=8).output
    missing = invoke("table", "--data-dir", tmp_path / "nowhere", "--out", tmp_path / "o", "--datasets", "femnist")
    assert (missing.exit_code, "there is no data folder" in missing.output) == (4, True)
    assert not (tmp_path / "o" / "runs").exists()
