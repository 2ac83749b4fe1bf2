"""What runs on disk amount to: values, seeds, claims and what is missing, all from made-up runs."""

import json
import math
import re
import shutil
from dataclasses import replace
from statistics import stdev

import pytest

from securedfl.errors import RunFolderError
from securedfl.experiments import paper, table
from securedfl.experiments.presets import Scale, read_preset
from securedfl.experiments.result_files import EXPERIMENTS, csv_text, make_record, markdown
from securedfl.experiments.runs.found import find, mean, spread
from securedfl.experiments.runs.training import examine, forecast, needed_runs, train_missing
from tests.experiments.made_up_runs import curve, invoke, write_run, write_runs

TABLE = read_preset("table")
OURS = {"local": 0.97, "fedavg": 0.99, "paper": 0.9901, "secured": 0.99, "shares": 0.99}


def as_published(config):
    """Return accuracies like the paper's."""
    known = paper.BEST_ACCURACY[config.dataset, config.peers]
    return {**known, "paper": known["secured"], "shares": known["fedavg"]}


def collected(experiment, out):
    return EXPERIMENTS[experiment].collect(read_preset(experiment), out, print)


def shown(experiment, out):
    return EXPERIMENTS[experiment].present(collected(experiment, out))


def verdicts(result):
    return {finding.claim: finding.verdict for finding in result.findings}


def test_the_papers_own_accuracies_satisfy_every_claim(tmp_path):
    out = write_runs(tmp_path, "table", as_published, test=200_000, datasets=["femnist", "cifar10"])
    write_runs(tmp_path, "table", as_published, datasets=["shakespeare"])
    result = shown("table", out)
    few = {finding.claim for finding in result.findings if finding.verdict == "not decided"}
    # 10,000 samples are too few for these; Local-Only errs on the same users with 9 and with 15 peers
    assert few == {
        "SecureD-FL as published is within 0.02 points of FedAvg on Shakespeare",
        "SecureD-FL exact is within 0.02 points of FedAvg on Shakespeare",
        "SecureD-FL shares is within 0.02 points of FedAvg on Shakespeare",
        # the largest difference of Table 2 itself
        "SecureD-FL as published is within 0.57 points of FedAvg on CIFAR-10",
        "SecureD-FL exact is within 0.57 points of FedAvg on CIFAR-10",
    }
    assert set(verdicts(result).values()) == {"holds for these models", "not decided"}
    assert result.scaled == []
    assert result.table.rows[0] == [
        "9",
        "FEMNIST",
        "99.01 %",
        "99.01 %",
        "99.52 %",
        "99.52 %",
        "99.53 %",
        "99.53 %",
        "99.53 %",
        "99.52 %",
        "common",
        "full",
    ]
    assert result.compact.rows[5] == [
        "CIFAR-10, 15 peers",
        "48.68 (48.68)",
        "76.64 (76.64)",
        "76.08 (76.08)",
        "76.08",
        "76.64",
    ]
    drawn = shown("curves", out)
    assert set(verdicts(drawn).values()) == {"holds for these models"}
    assert len(drawn.charts) == 6


def test_seeds_give_mean_and_spread(tmp_path):
    bests = {0: 0.98, 1: 0.97, 2: 0.99}
    write_runs(
        tmp_path,
        "table",
        lambda config: dict.fromkeys(config.methods, bests[config.seed]),
        datasets=["femnist"],
        peers=[9],
        seeds=[0, 1, 2],
    )
    data = collected("table", tmp_path)
    assert data.cells[0].methods["local"].best == [0.98, 0.97, 0.99]
    row = table.present(data).table.rows[0]
    assert row[3] == f"98.00 ± {100 * stdev(bests.values()):.2f} %"
    records = table.present(data).records
    assert [r["best_accuracy"] for r in records if r["method"] == "shares"] == [0.98, 0.97, 0.99]
    assert [r["best_round"] for r in records][:3] == [49, 49, 49]


def test_mean_and_spread_of_few():
    assert mean([1.0, 2.0]) == 1.5
    assert spread([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert math.isnan(spread([1.0]))
    assert math.isnan(mean([]))


def test_what_was_not_run_is_missing_and_not_invented(tmp_path):
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], peers=[9])
    result = shown("table", tmp_path)
    assert len(result.table.rows) == 6
    assert result.table.rows[1][2:] == ["50.54 %", "–", "52.70 %", "–", "52.71 %", "–", "–", "–", "–", "–"]
    found = verdicts(result)
    assert found["SecureD-FL as published is within 0.57 points of FedAvg on CIFAR-10"] == "not measured"
    assert found["More peers hurt Local-Only on FEMNIST"] == "not measured"
    assert any(note.startswith("Not run in full: Shakespeare with 9 peers") for note in result.notes)
    panels = shown("curves", tmp_path)
    assert len(panels.charts) == 1
    assert [axes.get_title() for axes in panels.figure.make().axes if not axes.lines][:2] == [
        "Shakespeare (9 peers)",
        "CIFAR-10 (9 peers)",
    ]


def test_nothing_at_all_is_no_error(tmp_path):
    for name in ("table", "curves", "accuracy", "iterations"):
        record, result = make_record(name, collected(name, tmp_path), command="x", chosen={})
        assert set(verdicts(result).values()) == {"not measured"}
        assert result.figure is None
        assert "not measured" in markdown(record, result)


def test_methods_of_an_unfinished_run_count_once_they_have_all_rounds(tmp_path):
    cell = needed_runs(TABLE, tmp_path, datasets=["femnist"], peers=[9], rounds=4)[0]
    write_run(cell, {"local": 0.9, "fedavg": 0.95}, done=3)
    with (cell.folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"method": "local", "round": 4, "accuracy": 0.93}) + "\n")
    run = find(TABLE, tmp_path)[0]
    assert run.curves == {"local": [*curve(4, 0.9)[:4], 0.93]}
    result = shown("table", tmp_path)
    assert result.table.rows[0][2:6] == ["99.01 %", "93.00 %", "99.52 %", "–"]


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


@pytest.mark.parametrize(
    ("ours", "test", "verdict"),
    [
        (0.9901, 10_000, "not decided"),
        (0.9901, 200_000, "holds for these models"),
        (0.98, 10_000, "differs for these models"),
        (0.9904, 10_000, "not decided"),
        (0.9904, 200_000, "differs for these models"),
    ],
)
def test_a_claim_holds_or_differs_only_with_its_whole_interval(tmp_path, ours, test, verdict):
    write_runs(tmp_path, "table", {**OURS, "paper": ours}, datasets=["femnist"], test=test)
    claim = "SecureD-FL as published is within 0.02 points of FedAvg on FEMNIST"
    (found,) = [finding for finding in shown("table", tmp_path).findings if finding.claim == claim]
    assert found.verdict == verdict
    assert ("would decide" in found.numbers) == (verdict == "not decided")
    assert "one seed" in found.numbers


def test_a_claim_about_cases_that_nobody_ran_does_not_hold(tmp_path):
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], peers=[9], test=200_000)
    found = {finding.claim: finding for finding in shown("table", tmp_path).findings}
    exact = found["SecureD-FL exact is within 0.02 points of FedAvg on FEMNIST"]
    assert (exact.verdict, exact.numbers.endswith("not run: FEMNIST with 15 peers")) == ("not decided", True)
    assert found["SecureD-FL exact is less than 1 point below FedAvg in all cases"].verdict == "not decided"


def test_a_case_that_was_begun_and_not_finished_is_as_one_that_nobody_ran(tmp_path):
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], peers=[9], test=200_000)
    cell = needed_runs(TABLE, tmp_path, datasets=["femnist"], peers=[15])[0]
    claim = "SecureD-FL exact is within 0.02 points of FedAvg on FEMNIST"
    for done, finished in (({"local": 0.98}, 40), ({"local": 0.98, "fedavg": 0.99}, None)):
        shutil.rmtree(cell.folder, ignore_errors=True)
        write_run(cell, done, done=finished)
        assert verdicts(shown("table", tmp_path))[claim] == "not decided"
        assert any("FEMNIST with 15 peers" in note for note in shown("table", tmp_path).notes)
        ends = [finding for finding in shown("curves", tmp_path).findings if "exact" in finding.claim]
        assert all("FEMNIST with 15 peers" in finding.numbers for finding in ends)


def test_without_the_samples_that_were_right_nothing_is_decided(tmp_path):
    write_runs(tmp_path, "table", {**OURS, "paper": 0.9}, datasets=["femnist"], peers=[9], kept=False)
    found = verdicts(shown("table", tmp_path))
    assert set(found.values()) == {"not decided", "not measured"}
    assert found["SecureD-FL as published is within 0.02 points of FedAvg on FEMNIST"] == "not decided"


def test_own_starts_are_a_row_that_is_not_judged(tmp_path):
    write_runs(tmp_path, "table", OURS, datasets=["femnist"], peers=[9])
    common = verdicts(shown("table", tmp_path))
    write_runs(tmp_path, "table", {**OURS, "fedavg": 0.5}, datasets=["femnist"], peers=[9], initial="own")
    assert (tmp_path / "runs" / "femnist-9-seed0-own").is_dir()
    data = collected("table", tmp_path)
    record, result = make_record("table", data, command="c", chosen={})
    assert [row[-2] for row in result.table.rows if row[1] == "FEMNIST"] == ["common", "own", "–"]
    assert result.compact.rows[1][0] == "FEMNIST, 9 peers, own starts"
    assert record.commands[1] == "securedfl reproduce table --datasets femnist --peers 9 --seeds 0 --initial own"
    assert verdicts(result) == common


def test_several_seeds_on_the_same_samples(tmp_path):
    worse = {0: 0.9899, 1: 0.9896, 2: 0.9894}
    write_runs(
        tmp_path,
        "table",
        lambda config: {**OURS, "paper": worse[config.seed]},
        datasets=["femnist"],
        peers=[9],
        seeds=[0, 1, 2],
    )
    cell = collected("table", tmp_path).cells[0]
    difference = cell.against["paper"]
    assert (difference.seeds, difference.predictions, difference.users) == (3, 30_000, 10_000)
    assert (difference.only_first, difference.only_second) == (0, 11)
    assert difference.points == pytest.approx(-11 / 300)
    assert difference.p is None
    # three seeds between -0.01 and -0.06 are few
    assert difference.low < -0.0633 < difference.high


def test_local_only_that_is_not_below_differs(tmp_path):
    best = {9: {**OURS, "local": 0.995}, 15: {**OURS, "local": 0.999}}
    write_runs(tmp_path, "table", lambda config: best[config.peers], datasets=["femnist"])
    found = verdicts(shown("table", tmp_path))
    assert found["Local-Only is below FedAvg"] == "differs for these models"
    assert found["More peers hurt Local-Only on FEMNIST"] == "differs for these models"


def test_numbers_of_peers_are_compared_on_the_seeds_that_both_have(tmp_path):
    best = {(9, 0): 0.995, (9, 1): 0.5, (15, 0): 0.985}
    for peers, seeds in ((9, [0, 1]), (15, [0])):
        write_runs(
            tmp_path,
            "table",
            lambda config: {**OURS, "local": best[config.peers, config.seed]},
            datasets=["femnist"],
            peers=[peers],
            seeds=seeds,
        )
    found = {finding.claim: finding for finding in shown("table", tmp_path).findings}
    hurt = found["More peers hurt Local-Only on FEMNIST"]
    assert hurt.verdict == "holds for these models"
    assert re.fullmatch(r"from 9 to 15 peers: −1.00 \[−1.\d\d, −0.\d\d\], one seed", hurt.numbers), hurt.numbers


def test_accuracy_by_iterations(tmp_path):
    write_runs(
        tmp_path,
        "accuracy",
        lambda config: {"paper": 0.2 if config.iterations == 1 else 0.99, "secured": 0.991},
    )
    result = shown("accuracy", tmp_path)
    assert set(verdicts(result).values()) == {"holds for these models"}
    assert [row[1] for row in result.table.rows] == [*"1234567", "2, exact finish"]
    assert [row[2] for row in result.table.rows] == ["20.00 %", *["99.00 %"] * 6, "99.10 %"]
    assert len(result.figure.make().axes[0].lines) == 8
    assert len(result.charts) == 2


def test_accuracy_that_depends_on_the_iterations_differs(tmp_path):
    write_runs(tmp_path, "accuracy", lambda c: {"paper": 0.9 + 0.01 * c.iterations, "secured": 0.9})
    found = verdicts(shown("accuracy", tmp_path))
    assert found["More than two iterations are within 1 point of two in best accuracy"] == "differs for these models"


def test_iterations_that_nobody_ran_leave_a_claim_about_all_of_them_undecided(tmp_path):
    for cell in needed_runs(read_preset("accuracy"), tmp_path)[:3]:
        write_run(cell, {"paper": 0.99, "secured": 0.99})
    claim = "More than two iterations are within 1 point of two in best accuracy"
    (found,) = [finding for finding in shown("accuracy", tmp_path).findings if finding.claim == claim]
    assert found.verdict == "not decided"
    assert found.numbers.endswith("not run: 4 iterations, 5 iterations, 6 iterations, 7 iterations")


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
