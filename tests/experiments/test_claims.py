"""Verdicts: what made-up runs hold, contradict or leave open."""

import re
import shutil

import pytest

from securedfl.experiments.presets import read_preset
from securedfl.experiments.result_files import make_record
from securedfl.experiments.runs.training import needed_runs
from tests.experiments.made_up_runs import OURS, TABLE, collected, shown, verdicts, write_run, write_runs


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
