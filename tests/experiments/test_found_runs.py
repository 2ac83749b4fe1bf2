"""Which runs on disk count, for what, and which are still to be trained."""

import json
import shutil
from dataclasses import replace

import pytest

from securedfl.errors import RunFolderError
from securedfl.experiments.presets import Scale
from securedfl.experiments.result_files import csv_text, make_record, markdown
from securedfl.experiments.runs.found import find
from securedfl.experiments.runs.training import examine, forecast, needed_runs, train_missing
from tests.experiments.made_up_runs import OURS, TABLE, collected, invoke, shown, verdicts, write_run, write_runs


def test_scaled_runs_are_told_apart_and_labelled_everywhere(tmp_path):
    scale = Scale(rounds=0.4, users=0.25)
    write_runs(tmp_path, "table", OURS, datasets=["cifar10"], peers=[9], scale=scale)
    write_runs(tmp_path, "table", OURS, datasets=["cifar10"], peers=[9])
    data = collected("table", tmp_path)
    record, result = make_record("table", data, command="c", chosen={})
    scales = [row[-1] for row in result.table.rows if row[1] == "CIFAR-10"]
    assert scales == ["full", "20 of 50 rounds, 25 % of users", "–"]
    assert record.commands == [
        "securedfl reproduce table --datasets cifar10 --peers 9 --seeds 0",
        "securedfl reproduce table --datasets cifar10 --peers 9 --seeds 0 --rounds 20 --scale users=0.25",
    ]
    assert record.scaled == ["CIFAR-10 (9 peers): 20 of 50 rounds, 25 % of users"]
    assert "**Scaled, not the paper's size:**" in markdown(record, result)
    assert "20 of 50 rounds" in csv_text(result.records)
    apart = [
        finding.claim for finding in result.findings if finding.claim.startswith("Scaled (20 of 50 rounds, 25 % of")
    ]
    assert len(apart) == 4
    assert all("CIFAR-10" in claim for claim in apart)
    record, result = make_record("curves", collected("curves", tmp_path), command="c", chosen={})
    titles = [axes.get_title() for axes in result.figure.make().axes]
    assert "CIFAR-10 (9 peers)\nscaled: 20 of 50 rounds, 25 % of users" in titles


@pytest.mark.parametrize("name", ["table", "curves"])
def test_what_is_smaller_decides_nothing_about_the_paper(tmp_path, name):
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], test=200_000)
    before = verdicts(shown(name, tmp_path))
    worse = {**OURS, "local": 0.999, "paper": 0.5, "secured": 0.5, "shares": 0.5}
    write_runs(tmp_path, "table", worse, datasets=["femnist", "cifar10"], scale=Scale(rounds=0.1, width=0.1))
    after = verdicts(shown(name, tmp_path))
    assert {claim: after[claim] for claim in before} == before
    apart = {claim: verdict for claim, verdict in after.items() if claim not in before}
    assert apart
    assert all(claim.startswith("Scaled (5 of 50 rounds, layers 0.1 times as wide): ") for claim in apart)
    assert "differs for these models" in apart.values()


def test_places_that_the_paper_does_not_have_decide_nothing_about_it(tmp_path):
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], test=200_000)
    before = verdicts(shown("table", tmp_path))
    worse = {**OURS, "local": 0.999, "paper": 0.5}
    write_runs(tmp_path, "table", worse, datasets=["femnist"], peers=[12])
    write_runs(tmp_path, "table", worse, datasets=["digits"], peers=[3])
    result = shown("table", tmp_path)
    assert verdicts(result) == before
    assert [row[:2] for row in result.table.rows][:2] == [["3", "digits"], ["9", "FEMNIST"]]


def test_a_run_that_is_there_twice_is_no_second_seed(tmp_path):
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], peers=[9])
    shutil.copytree(tmp_path / "runs" / "femnist-9-seed0", tmp_path / "runs" / "copy")
    with pytest.raises(RunFolderError, match=r"copy and .*femnist-9-seed0 are the same run, with seed 0; move one"):
        collected("table", tmp_path)


def test_means_are_over_seeds_that_all_methods_have(tmp_path):
    first, second = needed_runs(TABLE, tmp_path, datasets=["femnist"], peers=[9], seeds=[0, 1])
    write_run(first, OURS)
    write_run(second, {"local": 0.5, "fedavg": 0.6}, done=50)
    (cell,) = collected("table", tmp_path).cells
    assert cell.seeds == [0]
    assert cell.methods["local"].best == [0.97]


def test_fewer_methods_are_compared_among_themselves_until_there_are_all(tmp_path):
    three = ["paper", "local", "fedavg"]
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], methods=three)
    record, result = make_record("table", collected("table", tmp_path), command="c", chosen={})
    assert record.commands == [
        "securedfl reproduce table --datasets femnist --peers 9 --seeds 0 --methods local,fedavg,paper",
        "securedfl reproduce table --datasets femnist --peers 15 --seeds 0 --methods local,fedavg,paper",
    ]
    assert result.table.rows[0][2:10] == ["99.01 %", "97.00 %", "99.52 %", "99.00 %", "99.53 %", "99.01 %", "–", "–"]
    found = verdicts(result)
    assert found["Local-Only is below FedAvg on FEMNIST"] == "holds for these models"
    assert found["SecureD-FL shares is within 0.02 points of FedAvg on FEMNIST"] == "not measured"
    assert any("Not run in full: FEMNIST with 9 peers" in note for note in result.notes)
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], peers=[9])
    cell = collected("table", tmp_path).cells[0]
    assert (cell.whole, cell.only, set(cell.methods)) == (True, [], set(OURS))


def test_results_are_not_replaced_by_nothing(tmp_path):
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], peers=[9])
    assert invoke("table", "--no-train", "--out", tmp_path).exit_code == 0
    before = (tmp_path / "table.csv").read_bytes()
    shutil.rmtree(tmp_path / "runs")
    result = invoke("table", "--no-train", "--out", tmp_path)
    assert (result.exit_code, "they are left as they are" in " ".join(result.output.split())) == (8, True)
    assert (tmp_path / "table.csv").read_bytes() == before


def test_versions_are_those_of_what_trained(tmp_path):
    for cell in needed_runs(TABLE, tmp_path, datasets=["femnist"], peers=[9], seeds=[0, 1]):
        summary = write_run(cell, OURS) / "summary.json"
        told = {**json.loads(summary.read_text()), "versions": {"torch": f"{1 + cell.config.seed}", "numpy": "3"}}
        summary.write_text(json.dumps(told))
    record, _ = make_record("table", collected("table", tmp_path), command="c", chosen={})
    assert record.versions == {"numpy": "3", "torch": "1, 2"}


def test_a_data_set_that_is_not_there_is_an_error_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("securedfl.federation.train.train", lambda *_args, **_options: pytest.fail("trained"))
    (tmp_path / "data" / "femnist").mkdir(parents=True)
    (tmp_path / "data" / "femnist" / "train.parquet").touch()
    options = ("--datasets", "femnist,shakespeare", "--peers", 9, "--data-dir", tmp_path / "data", "--out", tmp_path)
    result = invoke("table", *options)
    assert (result.exit_code, "has no folder 'shakespeare'" in " ".join(result.output.split())) == (4, True)
    assert not (tmp_path / "runs").exists()


def test_scales_that_read_alike_are_not_mixed(tmp_path):
    for users, best in ((0.3333, 0.9), (0.33333, 0.8)):
        values = dict.fromkeys(OURS, best)
        write_runs(tmp_path, "table", values, datasets=["femnist"], peers=[9], scale=Scale(users=users))
    cells = collected("table", tmp_path).cells
    assert [cell.methods["local"].best for cell in cells] == [[0.9], [0.8]]


def test_runs_with_other_settings_do_not_count(tmp_path):
    cell = needed_runs(TABLE, tmp_path, datasets=["femnist"], peers=[9])[0]
    other = cell.config.model_copy(update={"learning_rate": 0.1})
    write_run(replace(cell, config=other), OURS)
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "config.toml").write_text("what = [")
    assert find(TABLE, tmp_path) == []
    with pytest.raises(RunFolderError, match=r"learning_rate = 0.1, not 0.001.*another --out"):
        examine(cell)


def test_damaged_metrics_of_a_run_are_an_error_and_not_a_gap(tmp_path):
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], peers=[9])
    file = tmp_path / "runs" / "femnist-9-seed0" / "metrics.jsonl"
    file.write_text("{}\n" + file.read_text())
    result = invoke("table", "--no-train", "--out", tmp_path)
    assert (result.exit_code, "line 1" in result.output) == (8, True)


def test_a_finished_run_is_reused_and_an_unfinished_one_needs_resume(tmp_path):
    cells = needed_runs(TABLE, tmp_path, datasets=["femnist"])
    write_run(cells[0], OURS)
    assert (examine(cells[0]), examine(cells[1])) == ("finished", "absent")
    assert train_missing(cells[:1]) == 0
    write_run(cells[1], OURS, done=7)
    assert examine(cells[1]) == "unfinished"
    with pytest.raises(RunFolderError, match=r"femnist-15-seed0 is unfinished.*--resume.*--no-train"):
        train_missing(cells)


def test_all_rounds_without_a_summary_are_not_finished(tmp_path):
    cell = needed_runs(TABLE, tmp_path, datasets=["femnist"], peers=[9])[0]
    folder = write_run(cell, OURS)
    (folder / "summary.json").write_text('{"finished": false}')
    assert examine(cell) == "unfinished"
    (folder / "summary.json").write_text("not json")
    assert examine(cell) == "unfinished"


def test_what_is_left_is_estimated_from_the_rounds_of_the_same_data_set(tmp_path):
    cells = needed_runs(TABLE, tmp_path)
    assert forecast(cells, cells) == (None, ("femnist", "shakespeare", "cifar10"))
    write_run(cells[0], OURS)
    seconds, unknown = forecast([cells[1], cells[2]], cells)
    assert seconds == pytest.approx(2.5 * 50 * 5 * 50 / 51)  # round 0 took no time
    assert unknown == ("shakespeare",)
