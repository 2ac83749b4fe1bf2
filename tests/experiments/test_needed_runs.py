"""Presets, scales and the runs needed: what is run, under which name, and how it is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from securedfl.cli.reproduce import HELP
from securedfl.errors import ConfigError, MissingDependencyError
from securedfl.experiments import paper
from securedfl.experiments.presets import NAMES, Scale, names, read_preset, scaled_in_words, whole_numbers
from securedfl.experiments.result_files import EXPERIMENTS
from securedfl.experiments.runs import estimate as estimating
from securedfl.experiments.runs.estimate import RoundTime, estimate, not_measured
from securedfl.experiments.runs.training import examine, needed_runs
from securedfl.federation.config import TrainConfig
from securedfl.federation.identity import changed_settings
from securedfl.protocols.admm import AUTHORS
from tests.experiments.made_up_runs import write_run

OUT = Path("out")


def folders(cells):
    return [cell.folder.name for cell in cells]


def test_every_experiment_has_a_preset_a_command_and_its_data():
    assert tuple(HELP) == (*NAMES, "all")
    assert tuple(EXPERIMENTS) == NAMES


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("groups", "privacy")])
def test_presets_have_the_papers_settings(name):
    for cell in needed_runs(read_preset(name), OUT):
        config = cell.config
        assert (config.rounds, config.batch_size, config.learning_rate, config.epochs) == (50, 32, 0.001, 1)
        assert (config.width, config.fraction, cell.scaled) == (1, 1, "")
        expected = {
            "femnist": ("cnn", "rmsprop"),
            "shakespeare": ("gru", "adam"),
            "cifar10": ("resnet18", "rmsprop"),
        }
        assert (config.model, config.optimizer) == expected[config.dataset]
        assert (config.dealing, config.initial) == ("natural", "common")


def test_curves_need_no_runs_of_their_own():
    table, curves = (needed_runs(read_preset(name), OUT) for name in ("table", "curves"))
    assert table == curves
    assert len(table) == 6


def test_accuracy_trains_every_schedule_of_the_authors_and_the_exact_finish_once():
    cells = needed_runs(read_preset("accuracy"), OUT)
    assert [cell.config.iterations for cell in cells] == sorted(AUTHORS)
    assert [m for cell in cells for m in cell.config.methods].count("secured") == 1
    assert all(cell.config.allow_exposure for cell in cells)
    assert folders(cells)[2] == "accuracy-femnist-9-seed0-iterations3"


def test_unknown_experiment_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'curves'"):
        read_preset("curve")


def test_full_size_folders_have_plain_names_and_the_settings_of_an_ordinary_training():
    cell = needed_runs(read_preset("table"), OUT, datasets=["femnist"], peers=[9], seeds=[0])[0]
    assert cell.folder == OUT / "runs" / "femnist-9-seed0"
    trained = TrainConfig.resolve(
        {
            "dataset": "femnist",
            "peers": 9,
            "rounds": 50,
            "methods": "local,fedavg,paper,secured,shares",
            "seed": 0,
            "workers": 2,
            "data_dir": "elsewhere",
        }
    )
    assert changed_settings(trained, cell.config) == []


def test_own_starts_have_runs_of_their_own():
    cells = needed_runs(read_preset("table"), OUT, datasets=["femnist"], peers=[9], initial="own", rounds=5)
    assert folders(cells) == ["femnist-9-seed0-own-rounds0.1"]
    assert cells[0].config.initial == "own"
    assert cells[0].about == "femnist, 9 peers, seed 0, own starts (scaled: 5 of 50 rounds)"


def test_fewer_methods_have_runs_of_their_own():
    chosen = {"datasets": ["femnist"], "peers": [9]}
    (cell,) = needed_runs(read_preset("table"), OUT, methods=["fedavg", "local"], **chosen)
    assert (cell.folder.name, cell.config.methods) == ("femnist-9-seed0-local+fedavg", ("local", "fedavg"))
    assert cell.about == "femnist, 9 peers, seed 0, local, fedavg"
    with pytest.raises(ConfigError, match="unknown --methods 'fedavgg'; did you mean 'fedavg'"):
        needed_runs(read_preset("table"), OUT, methods=["local", "fedavgg"], **chosen)
    with pytest.raises(ConfigError, match="one method alone compares nothing"):
        needed_runs(read_preset("table"), OUT, methods=["fedavg"], **chosen)


def test_scaled_folders_say_so():
    preset = read_preset("table")
    scale = Scale(rounds=0.4, users=0.25, width=0.25)
    cells = needed_runs(preset, OUT, scale=scale, datasets=["shakespeare"], peers=[15], seeds=[1, 2])
    assert folders(cells) == [f"shakespeare-15-seed{s}-rounds0.4-users0.25-width0.25" for s in (1, 2)]
    config = cells[0].config
    assert (config.rounds, config.fraction, config.width) == (20, 0.25, 0.25)
    assert cells[0].scaled == "20 of 50 rounds, 25 % of users, layers 0.25 times as wide"
    assert "scaled: 20 of 50 rounds" in cells[0].about


def test_rounds_are_a_scale_too():
    preset = read_preset("iterations")
    cell = needed_runs(preset, OUT, rounds=4)[0]
    assert (cell.folder.name, cell.scaled) == ("updates-femnist-9-seed0-rounds0.08", "4 of 50 rounds")
    assert cell.config.keep_updates == 4  # fewer rounds than the preset's 5 between checkpoints
    assert needed_runs(preset, OUT, rounds=50)[0] == needed_runs(preset, OUT)[0]
    with pytest.raises(ConfigError, match="--rounds or by --scale"):
        needed_runs(preset, OUT, rounds=4, scale=Scale(rounds=0.5))


def test_scale_is_read_as_one_share_or_several():
    assert Scale.parse("0.2") == Scale(rounds=0.2, users=0.2, width=0.2)
    assert Scale.parse("rounds=0.4, width=0.5") == Scale(rounds=0.4, width=0.5)
    assert Scale.parse("1") == Scale()
    assert Scale().suffix == ""
    assert Scale(rounds=0.001).of_rounds(50) == 1


@pytest.mark.parametrize("text", ["0", "-1", "2", "nan", "half", "", "rounds", "rounds=", "users=0", "width=1.5"])
def test_bad_shares_are_refused(text):
    with pytest.raises(ConfigError, match="--scale"):
        Scale.parse(text)


def test_bad_parts_of_a_scale_are_named():
    with pytest.raises(ConfigError, match="did you mean 'users'"):
        Scale.parse("user=0.5")
    with pytest.raises(ConfigError, match="once"):
        Scale.parse("users=0.5,users=0.2")


def test_more_rounds_than_the_papers_are_told_as_well():
    config = TrainConfig.resolve({"rounds": 60})
    assert scaled_in_words(config, 50) == "60 of 50 rounds"


def test_lists_of_numbers_and_names():
    assert whole_numbers("0,2-4", "--seeds") == (0, 2, 3, 4)
    assert names(" femnist, cifar10", "--datasets") == ("femnist", "cifar10")
    for bad in ("", "x", "1,1", "-1", "1-", "3-1"):
        with pytest.raises(ConfigError, match="--seeds"):
            whole_numbers(bad, "--seeds")
    with pytest.raises(ConfigError, match="--datasets"):
        names("femnist,femnist", "--datasets")


def test_an_estimate_counts_what_is_left_and_measures_each_kind_once(tmp_path, monkeypatch):
    runs = needed_runs(read_preset("table"), tmp_path, datasets=["femnist"], peers=[9], seeds=[0, 1, 2], rounds=10)
    write_run(runs[0], dict.fromkeys(runs[0].config.methods, 0.9))
    write_run(runs[1], {"local": 0.9, "fedavg": 0.9}, done=4)
    states = {run.folder: examine(run) for run in runs}
    asked = []

    def measure(config, _task):
        asked.append(config.seed)
        return RoundTime(train=2.0, score=1.0, averages=dict.fromkeys(config.methods, 0.5) | {"local": 0.0})

    monkeypatch.setattr(estimating, "opened", lambda _config: None)
    monkeypatch.setattr(estimating, "measured", measure)
    found = estimate(runs, states, lambda _: None)
    assert asked == [1]
    assert [one.state for one in found] == ["finished", "unfinished", "absent"]
    whole = 10 * (5 * 3.0 + 4 * 0.5)
    assert [one.seconds for one in found] == [0, whole - 4 * (2 * 3.0 + 0.5), whole]


def test_an_estimate_looks_for_a_missing_data_set_once_for_each_number_of_peers(tmp_path, monkeypatch):
    preset = read_preset("accuracy")
    runs = [run for peers in (9, 15) for run in needed_runs(preset, tmp_path, peers=[peers])]
    asked = []

    def look(config):
        asked.append(config.peers)
        raise MissingDependencyError("femnist is not here")

    monkeypatch.setattr(estimating, "opened", look)
    found = estimate(runs, {run.folder: examine(run) for run in runs}, lambda _: None)
    assert asked == [9, 15]
    with pytest.raises(
        MissingDependencyError, match=f"femnist: {len(runs)} runs could not be measured: femnist is not"
    ):
        not_measured(found)
    finished = [replace(one, state="finished", error=None, seconds=0.0) for one in found]
    assert not_measured(finished) == []


def test_what_cannot_be_measured_keeps_nothing_else_from_it(tmp_path, monkeypatch):
    runs = needed_runs(read_preset("accuracy"), tmp_path, peers=[9])

    def measure(config, _task):
        if config.iterations == 3:
            raise ConfigError("3 iterations are not possible")
        return RoundTime(train=1.0, score=1.0, averages=dict.fromkeys(config.methods, 0.1))

    monkeypatch.setattr(estimating, "opened", lambda _config: None)
    monkeypatch.setattr(estimating, "measured", measure)
    found = estimate(runs, {run.folder: examine(run) for run in runs}, lambda _: None)
    assert [one.run.config.iterations for one in found if one.error] == [3]
    assert not_measured(found) == ["femnist: 1 run could not be measured: 3 iterations are not possible"]


def test_unknown_data_set_and_impossible_peers_are_refused_before_anything_runs():
    with pytest.raises(ConfigError, match="did you mean 'femnist'"):
        needed_runs(read_preset("table"), OUT, datasets=["femnst"])
    with pytest.raises(ConfigError, match="peers = 1"):
        needed_runs(read_preset("table"), OUT, peers=[1])


def test_the_papers_numbers_support_its_claims():
    for (dataset, peers), row in paper.BEST_ACCURACY.items():
        assert 100 * abs(row["secured"] - row["fedavg"]) <= paper.POINTS[dataset] + 1e-9
        assert row["local"] < row["fedavg"]
        assert paper.BEST_ACCURACY[dataset, 15]["local"] < paper.BEST_ACCURACY[dataset, 9]["local"], peers
    assert paper.MSE[4] < paper.MSE_AFTER_FOUR < paper.MSE[3]
    assert sorted(paper.MSE) == sorted(AUTHORS)
