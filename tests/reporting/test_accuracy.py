"""Accuracies say on which test data they were measured, and how sure they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from securedfl.federation.run_folder.correctness import CorrectKeeper
from securedfl.federation.run_folder.metrics import Row
from securedfl.federation.run_folder.reader import read_run
from securedfl.learning.training.task import ScoredOn
from securedfl.reporting.sections import comparison
from securedfl.reporting.sections.accuracy import best, explained, sureness, views

MakeRun = Callable[..., Path]


def change(folder: Path, **by_method: dict[str, object]) -> None:
    """Give the last round of some methods other numbers."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if row["round"] == 6:
            row |= by_method.get(row["method"], {})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


SKEWED = {"accuracy": 0.99, "peer_accuracy": [0.99] * 9, "all_accuracy": [0.3] * 9}


def test_skewed_labels_never_put_the_average_below_local_only(make_run: MakeRun) -> None:
    folder = make_run(samples={"train": 900, "test": 2000})
    change(folder, local=SKEWED)
    run = read_run(folder)
    assert "65.79 points above Local-Only" in comparison.result(run)
    table = comparison.results_table(run)
    assert list(table.columns[:4]) == ["Method", "All", "Own", "Best round"]
    assert table.rows[0][:3] == ("Local-Only", "30.00 % (28.0 to 32.0)", "99.00 %")
    assert table.rows[0][3] == "99.00 % (round 6, Own)"
    assert "knows few labels can do well" in explained(views(run))
    # how it does on data of others was not measured, so nothing is said
    change(folder, local={"all_accuracy": []})
    assert "Local-Only" not in comparison.result(read_run(folder))


def test_the_common_test_set_comes_first_and_the_best_round_is_labelled(make_run: MakeRun) -> None:
    folder = make_run(samples={"train": 900, "test": 180})
    (folder / "data.json").write_text(json.dumps({"peers": [{"train": 100, "test": 20}] * 9, "common": 500}))
    common = {"common_accuracy": 0.90}
    change(folder, secured=common, fedavg={"common_accuracy": 0.91}, local=SKEWED | {"common_accuracy": 0.5})
    run = read_run(folder)
    assert [view.name for view in views(run)] == ["Common", "All", "Own"]
    told = comparison.result(run)
    assert "ended at 90.00 % (95 % interval 87.1 to 92.3) on the common test set after round 6: 1.00 points" in told
    assert "points below FedAvg, which may be chance" in told
    assert "40.00 points above Local-Only." in told
    assert "Only 500 test samples stand behind these numbers." in told
    assert "500 test samples are few" in sureness(views(run))
    tiles = comparison.key_figures(run)
    assert tiles["SecureD-FL on the common test set, round 6; 95 % interval 87.1 to 92.3 %"] == "90.00 %"
    assert tiles["best round: 6, chosen afterwards"] == "90.00 %"


def test_differences_are_judged_in_pairs_where_it_was_kept_what_was_right(make_run: MakeRun) -> None:
    folder = make_run(samples={"train": 900, "test": 2000})
    ours, theirs = ({"accuracy": share, "peer_accuracy": [share] * 9} for share in (0.91, 0.90))
    change(folder, secured=ours, fedavg=theirs)
    assert "1.00 points above FedAvg, which may be chance" in comparison.result(read_run(folder))
    # the same samples wrong, but for 20 that only one method has right
    tested = ScoredOn(*[np.arange(2000, dtype=np.int32)] * 2)
    for method, count in (("secured", 1820), ("fedavg", 1800)):
        keeper = CorrectKeeper(folder, method, tested)
        keeper.see(Row(method=method, round=6, accuracy=count / 2000), [np.arange(2000) < count])
        keeper.before(lambda _checkpoint: None)(None)
    assert "1.00 points above FedAvg" in comparison.result(read_run(folder))
    assert "chance" not in comparison.result(read_run(folder)).split("Local-Only")[0]


def test_the_best_round_is_the_earliest_of_equal_ones(make_run: MakeRun) -> None:
    folder = make_run()
    run = read_run(folder)
    change(folder, secured={"accuracy": run.methods[2].rounds[4].accuracy})
    found = read_run(folder)
    best_round = best(found, found.methods[2], views(found)[0])
    assert best_round is not None
    assert best_round.round == 5
    change(folder, secured={"accuracy": run.methods[2].rounds[5].accuracy})
    again = read_run(folder)
    tied = best(again, again.methods[2], views(again)[0])
    assert tied is not None
    assert tied.round == 5


def test_epsilon_stands_beside_accuracy(make_run: MakeRun) -> None:
    folder = make_run()
    change(folder, secured={"epsilon": 3.25})
    run = read_run(folder)
    table = comparison.results_table(run)
    at = table.columns.index("Epsilon")
    assert [row[at] for row in table.rows] == ["–", "–", "3.25"]
    assert comparison.key_figures(run)["epsilon spent by SecureD-FL"] == "3.25"
    assert "after round 6, with epsilon 3.25: the same as FedAvg" in comparison.result(run)


def test_an_epsilon_without_a_bound_is_told_as_such(make_run: MakeRun) -> None:
    """Not as the last one that was finite."""
    folder = make_run()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row["epsilon"] = 44.8 if row["method"] == "secured" and row["round"] < 6 else None
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read_run(folder)
    assert run.methods[-1].rounds[-1].epsilon is None
    table = comparison.results_table(run)
    assert table.rows[-1][table.columns.index("Epsilon")] == "no bound"
    assert comparison.key_figures(run)["epsilon spent by SecureD-FL"] == "no bound"
    assert "after round 6, with no bound on epsilon: the same as FedAvg" in comparison.result(run)
